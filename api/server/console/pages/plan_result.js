// One plan: the mix, its cost and power, the proof of its SLO, the routing and the explanation.

import { result, solve } from "../lib/api.js";
import { bars, legend, lines, stack } from "../lib/charts.js";
import { download, h, put, rich } from "../lib/dom.js";
import { ms, num, percent, plural, short, usd, watts, words } from "../lib/format.js";
import { replicaPrice } from "../lib/parts.js";
import { shortened } from "../lib/schema.js";
import { action, badge, card, empty, facts, link, meter, progress, table, tile, tiles, time } from "../lib/ui.js";
import { stringify } from "../lib/yaml.js";

export async function page(context) {
  const { id } = context.params;
  const record = await result(`v1/plans/${id}`, context.signal);
  const { plan, request } = record;
  context.title = `Plan ${short(id)}`;
  const hasMix = plan.allocation.length > 0;
  const answer = h("div", { class: "gap", role: "status" });
  const job = (title, part, show) => async () => {
    const stop = new AbortController();
    context.signal.addEventListener("abort", () => stop.abort(new DOMException("left", "AbortError")));
    const shown = progress(title, { onCancel: () => stop.abort(new DOMException("cancelled", "AbortError")) });
    put(answer, shown.element);
    try {
      put(answer, show(await solve(`v1/plans/${id}/${part}`, {}, { signal: stop.signal, onProgress: (at) => shown.update(at) })));
    } finally {
      shown.end();
    }
  };
  return [
    h(
      "div",
      { class: "head" },
      h("p", { class: "crumbs" }, link("#/plans", "Plans"), " / ", h("code", {}, id)),
      h("h1", {}, record.name ?? request.workloads.map((workload) => workload.name).slice(0, 4).join(", ") + (request.workloads.length > 4 ? " …" : "")),
      Object.entries(record.labels).map(([key, value]) => [h("code", {}, `${key}=${value}`), " "]),
      badge(plan.status),
      plan.verified === null ? null : badge(plan.verified ? "verified" : "SLO broken", { tone: plan.verified ? "good" : "bad" }),
      h(
        "div",
        { class: "buttons" },
        h("a", { class: "button", href: `#/plans/new?from=${id}` }, "Edit as new"),
        h("a", { class: "button", href: `#/plans/sweep?base=${id}` }, "Sweep"),
        h("a", { class: "button", href: `#/plans/compare?a=${id}` }, "Compare"),
        action("JSON", async () => download(`plan-${id}.json`, `${JSON.stringify(record, null, 2)}\n`, "application/json"), { describe: "Export the plan as JSON" }),
        action("YAML", async () => download(`plan-${id}.yaml`, stringify(await shortened(request, "PlanRequest")), "application/yaml"), { describe: "Export the request as YAML" }),
        action("Explain again", job("Explaining", "explanation", explained), { scope: "plan" }),
        hasMix ? action("Replay an hour", job("Replaying", "replay", replayed), { scope: "plan" }) : null,
        hasMix ? h("a", { class: "button primary", href: `#/plans/${id}/apply` }, "Apply …") : null,
      ),
      h("p", { class: "lead" }, "Planned ", time(record.created_at), ` by ${record.created_by} in ${num(plan.solve_s, 2)} s`, plan.cut?.length ? `; the time limit cut short: ${plan.cut.join(", ")}` : null),
    ),
    answer,
    hasMix ? mix(record) : noMix(plan),
  ];
}

const changedInputs = (inputs) =>
  inputs.filter((each) => !each.is_as_planned).map((each) => h("p", { class: "note" }, `${each.catalogue} changed since the plan: version ${num(each.planned)}, here ${num(each.used)}. Results may differ.`));

const explained = (found) =>
  card(
    "Explanation, solved again",
    changedInputs(found.inputs),
    found.same_mix ? null : h("p", { class: "note" }, "Solving the request again gave another mix, which this explains."),
    explanation({ explanation: found.explanation.lines }),
    found.cut.length ? h("p", { class: "note muted" }, `The time limit cut short: ${found.cut.join(", ")}.`) : null,
  );

const replayed = ({ replay: found, inputs, hours, seed }) => [
  changedInputs(inputs),
  found.obstacle ? card("Replay", empty(`Not replayed: ${found.obstacle}.`)) : slo(found.proofs, `SLO, replayed for ${num(hours)} h with seed ${num(seed)}`),
  found.not_replayed.length ? h("p", { class: "note" }, `No time for: ${found.not_replayed.join(", ")}.`) : null,
];

function noMix(plan) {
  return h(
    "div",
    { class: "rows" },
    card("No mix meets the request", explanation(plan)),
    plan.conflicts.length
      ? card(
          "Requirements that cannot all hold",
          h("ul", { class: "explanation" }, plan.conflicts.map((conflict) => h("li", {}, conflict.requirements.join("; "), conflict.ways_out.length ? h("ul", { class: "explanation" }, conflict.ways_out.map((way) => h("li", {}, `way out: ${way.easing}`))) : null))),
        )
      : null,
    inputs(plan),
  );
}

function mix({ plan, request }) {
  const gpus = plan.allocation.reduce((total, entry) => total + entry.count * entry.gpus_per_replica, 0);
  const options = [...new Set(plan.allocation.map((entry) => entry.option))];
  return [
    tiles(
      tile("Cost", usd(plan.cost_usd_per_h), plan.gap === 0 ? "per hour; proven the least" : plan.gap === null ? "per hour" : `per hour; at most ${percent(plan.gap, 1)} above the least`),
      tile("Power", watts(plan.power_w), "at full load"),
      tile("Replicas", num(plan.allocation.reduce((total, entry) => total + entry.count, 0)), `on ${plural(gpus, "GPU")}`),
      tile("SLO", plan.verified === null ? "not replayed" : plan.verified ? "holds" : "broken", plan.proofs.length ? `${num(plan.proofs.reduce((total, proof) => total + proof.requests, 0))} requests replayed` : "the request has no replay"),
      plan.moves ? tile("Rollout", plan.moves.possible ? plural(plan.moves.steps.length, "step") : "not possible", plan.moves.possible ? `${num(plan.moves.minutes, 0)} min, ${usd(plan.moves.temporary_usd)} meanwhile` : plan.moves.reason) : null,
    ),
    h(
      "div",
      { class: "rows" },
      card("Mix", table("Replicas of the plan", mixColumns(plan, options), plan.allocation)),
      h("div", { class: "columns" }, h("div", { class: "rows" }, costs(plan), alternatives(plan)), h("div", { class: "rows" }, slo(plan.proofs))),
      card("Explanation", explanation(plan)),
      routing(plan, options),
      plan.timetable ? timetable(plan.timetable) : null,
      plan.power_domains.length ? powerDomains(plan) : null,
      inputs(plan),
      h("details", { class: "card" }, h("summary", {}, "Request"), h("pre", { tabindex: "0" }, JSON.stringify(withoutTrace(request), null, 2))),
    ),
  ];
}

const mixColumns = (plan, options) => [
  { head: "Option", cell: (entry) => [swatch(options.indexOf(entry.option)), " ", entry.option] },
  { head: "Workload", cell: (entry) => entry.workload },
  { head: "GPU", cell: (entry) => entry.gpu },
  { head: "Replicas", number: true, cell: (entry) => h("strong", {}, num(entry.count)) },
  { head: "GPUs each", number: true, cell: (entry) => num(entry.gpus_per_replica) },
  { head: "Clock", number: true, cell: (entry) => (entry.clock === null ? "–" : percent(entry.clock)) },
  { head: "Busy", number: true, cell: (entry) => [meter(entry.busy, 1, { label: "Busy share" }), " ", percent(entry.busy)] },
  { head: "Power", number: true, cell: (entry) => watts(entry.power_w) },
  {
    head: "$/h",
    number: true,
    cell(entry) {
      const price = replicaPrice(plan, entry);
      return price === null ? "–" : usd(price * entry.count);
    },
  },
];

const swatch = (index) => h("span", { class: "swatch", "aria-hidden": "true" }, legendSwatch(index));
const legendSwatch = (index) => legend([{ label: "", index }]).querySelector("svg");

function costs(plan) {
  const hires = [...plan.hires].sort((a, b) => b.cost_usd_per_h - a.cost_usd_per_h);
  return card(
    "Cost per hour",
    bars(
      "Cost per hour of each hired unit",
      hires.map((hire) => ({ label: hire.name, value: hire.cost_usd_per_h, text: usd(hire.cost_usd_per_h), limitText: `${num(hire.units)} × ${usd(hire.price_usd_per_h)}`, series: 0 })),
    ),
  );
}

// Every limit as a bar: the measured latency in units of its limit, which is the mark.
function slo(proofs, title = "SLO, measured in the replay") {
  if (!proofs.length) return card("SLO", empty("Not replayed. Give the request a replay to prove its latency limits."));
  return card(
    title,
    proofs.map((proof) => [
      proofs.length > 1 ? h("h3", {}, proof.workload) : null,
      bars(
        `Measured latencies of ${proof.workload} against their limits`,
        proof.slo_check.limits.map((limit) => ({
          label: `${words(limit.metric.replace("_ms", "").replace("ttft", "first token").replace("tpot", "per token").replace("e2e", "request"))}, ${limit.statistic}`,
          value: limit.measured_ms / limit.limit_ms,
          limit: 1,
          tone: limit.holds ? "good" : "bad",
          text: ms(limit.measured_ms),
          limitText: `of ${ms(limit.limit_ms)}`,
        })),
        { max: Math.max(1.15, ...proof.slo_check.limits.map((limit) => limit.measured_ms / limit.limit_ms)) },
      ),
      h("p", { class: "note muted" }, `${num(proof.requests)} requests, ${num(proof.hours)} h of ${proof.traffic} traffic; ${num(proof.slo_check.not_served)} not served.`, proof.tightness ? (proof.tightness.tight ? " Every replica is needed." : " A replica more than needed.") : ""),
      proof.losses.length ? h("details", {}, h("summary", {}, `${plural(proof.losses.length, "failure")} replayed`), h("ul", { class: "explanation" }, proof.losses.map((loss) => h("li", {}, badge(loss.verified ? "verified" : "refused", { text: loss.verified ? "holds" : "breaks" }), ` ${loss.name}`)))) : null,
    ]),
  );
}

const explanation = (plan) => (plan.explanation.length ? h("ul", { class: "explanation two" }, plan.explanation.map((line) => h("li", {}, rich(line)))) : empty("The request asked for none."));

function alternatives(plan) {
  const priced = plan.alternatives.filter((each) => each.cost_usd_per_h !== null).sort((a, b) => a.cost_usd_per_h - b.cost_usd_per_h);
  const rest = plan.alternatives.filter((each) => each.cost_usd_per_h === null);
  if (!priced.length && !rest.length) return card("One GPU type alone", empty("Not compared."));
  return card(
    "One GPU type alone, $/h",
    bars(
      "Cost of plans with one GPU type, against this plan",
      [{ label: "This plan", value: plan.cost_usd_per_h, text: usd(plan.cost_usd_per_h), series: 0 }, ...priced.slice(0, 12).map((each) => ({ label: each.gpu, value: each.cost_usd_per_h, text: usd(each.cost_usd_per_h), limitText: `+${usd(each.extra_usd_per_h)}`, tone: "plain" }))],
    ),
    rest.length ? h("details", {}, h("summary", {}, `${num(rest.length)} not possible alone`), h("ul", { class: "explanation" }, rest.map((each) => h("li", {}, h("strong", {}, each.gpu), ` ${each.reason ?? words(each.status)}`)))) : null,
  );
}

// A matrix for each workload: input tokens down, output tokens across; a cell shows which options take requests of its size.
function routing(plan, options) {
  const workloads = Object.entries(plan.routing).filter(([, buckets]) => Object.keys(buckets).length);
  if (!workloads.length) return null;
  const names = [...new Set(workloads.flatMap(([, buckets]) => Object.values(buckets).flatMap((weights) => Object.keys(weights))))];
  const index = (name) => (options.includes(name) ? options.indexOf(name) : options.length + names.indexOf(name));
  const text = (weights) => Object.entries(weights ?? {}).map(([name, weight]) => `${percent(weight)} to ${name}`).join(", ") || "not served";
  const edges = (buckets, part) => [...new Set(Object.keys(buckets).map((bucket) => Number(bucket.split("x")[part])))].sort((a, b) => a - b);
  const cell = (weights) =>
    weights && Object.keys(weights).length ? stack(text(weights), Object.entries(weights).map(([label, value]) => ({ label, value, series: index(label) }))) : h("span", { class: "muted" }, "not served");
  return card(
    "Routing",
    h("p", { class: "muted" }, "Which options take requests of each size: at most this many input tokens (rows) and output tokens (columns)."),
    legend(names.map((label) => ({ label, index: index(label) }))),
    workloads.map(([workload, buckets]) => [
      workloads.length > 1 ? h("h3", {}, workload) : null,
      table(
        `Routing of ${workload}: options by input and output tokens`,
        [
          { head: "Input tokens", cell: (row) => num(row) },
          ...edges(buckets, 1).map((column) => ({ head: `${num(column)} out`, cell: (row) => cell(buckets[`${row}x${column}`]) })),
        ],
        edges(buckets, 0),
      ),
    ]),
  );
}

function timetable(schedule) {
  const running = schedule.periods.map((period) => period.running.reduce((total, each) => total + (each.count ?? each.replicas ?? 0), 0));
  const rates = schedule.periods.map((period) => Object.values(period.rate_rps).reduce((total, rate) => total + rate, 0));
  return card(
    "Schedule",
    facts([
      ["Cost", `${usd(schedule.total_usd)} over the whole; ${usd(schedule.flat_usd)} with the mix for the peak all the time`],
      ["Saving", percent(schedule.saving, 1)],
    ]),
    running.length > 1
      ? h(
          "div",
          { class: "columns" },
          lines("Replicas that serve in each period", { step: schedule.period_h, lines: [{ values: running, class: "mean" }], xText: "Hours", yText: "Replicas" }),
          lines("Requests per second in each period", { step: schedule.period_h, lines: [{ values: rates, class: "max" }], xText: "Hours", yText: "Requests/s" }),
        )
      : null,
    schedule.notes.length ? h("ul", { class: "explanation" }, schedule.notes.map((note) => h("li", {}, note))) : null,
  );
}

const powerDomains = (plan) =>
  card(
    "Power domains",
    bars("Planned power of each domain against its limit", plan.power_domains.map((domain) => ({ label: domain.name, value: domain.planned_w, limit: domain.limit_w, text: watts(domain.planned_w), limitText: `of ${watts(domain.limit_w)}` }))),
  );

function inputs(plan) {
  if (!plan.inputs.length) return null;
  return h(
    "details",
    { class: "card" },
    h("summary", {}, `${plural(plan.inputs.length, "input")} and their age`),
    table(
      "Inputs of the plan",
      [
        { head: "Input", cell: (row) => row.kind },
        { head: "Name", cell: (row) => row.name },
        { head: "As of", cell: (row) => row.as_of ?? "–" },
        { head: "Days old", number: true, cell: (row) => num(row.age_days) },
        { head: "Source", wide: true, cell: (row) => row.source ?? "–" },
      ],
      plan.inputs,
    ),
  );
}

// A trace of a million rows is no text to show.
const withoutTrace = (request) => JSON.parse(JSON.stringify(request, (key, value) => (key === "trace_csv" ? `${String(value).slice(0, 60)} …` : value === null ? undefined : value)));

