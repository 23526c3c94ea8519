// Sweep: plan one request at several rates or latency limits, and see the Pareto front of load or limits against cost.
// The address holds the finished plans, so that a reload shows them again.

import { page as readPage, result, solve } from "../lib/api.js";
import { scatter } from "../lib/charts.js";
import { h, put } from "../lib/dom.js";
import { num, plural, short, usd, watts } from "../lib/format.js";
import { shortened } from "../lib/schema.js";
import { action, badge, card, empty, field, input, link, progress, select, table } from "../lib/ui.js";

const AXES = [
  ["rate", "request rate"],
  ["slo", "latency limits"],
];
const FACTORS = { rate: "0.25, 0.5, 0.75, 1, 1.5, 2", slo: "0.5, 0.75, 1, 1.5, 2, 3" };
const MAX_POINTS = 24;
const METRICS = ["ttft_ms", "tpot_ms", "e2e_ms"];

export async function page(context) {
  context.title = "Sweep";
  const { query, signal } = context;
  const recent = await readPage("v1/plans", { limit: 200, signal });
  const base = query.get("base") ?? recent.items.find((plan) => plan.cost_usd_per_h !== null)?.id;
  const head = h("div", { class: "head" }, h("p", { class: "crumbs" }, link("#/plans", "Plans"), " / sweep"), h("h1", {}, "Sweep"), h("p", { class: "lead" }, "Plan one request several times, with its rate or its latency limits multiplied by each factor."));
  if (!base) return [head, empty("There is no plan to start from.", h("div", { class: "buttons" }, h("a", { class: "button primary", href: "#/plans/new" }, "New plan")))];
  const record = await result(`v1/plans/${base}`, signal);
  const axis = query.get("axis") === "slo" ? "slo" : "rate";
  const done = points(query.get("plans"));
  const found = await Promise.all(done.map(async ({ factor, id }) => ({ factor, ...(await result(`v1/plans/${id}`, signal)) })));
  const holder = h("div", { class: "rows" }, drawn(found, axis, record));
  const running = h("div", {});

  const bases = recent.items.map((plan) => [plan.id, `${short(plan.id)} · ${plan.cost_usd_per_h === null ? plan.status : usd(plan.cost_usd_per_h)}`]);
  if (!bases.some(([id]) => id === base)) bases.push([base, short(base)]);
  const chosenBase = select(bases, { value: base, onchange: () => (location.hash = `#/plans/sweep?base=${chosenBase.value}&axis=${axis}`) });
  const chosenAxis = select(AXES, { value: axis, onchange: () => (factors.value = FACTORS[chosenAxis.value]) });
  const factors = input({ value: done.length ? done.map((point) => point.factor).join(", ") : FACTORS[axis] });
  const start = action("Run the sweep", run, { scope: "plan", kind: "primary" });

  async function run() {
    const list = [...new Set(factors.value.split(/[\s,;]+/).filter(Boolean).map(Number))].sort((a, b) => a - b);
    if (!list.length || list.length > MAX_POINTS || list.some((factor) => !(factor > 0))) throw new Error(`factors: allowed are 1 to ${MAX_POINTS} numbers above 0`);
    const which = chosenAxis.value;
    const request = await shortened(record.request, "PlanRequest");
    const requests = list.map((factor) => scaled(request, which, factor));
    const stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort(new DOMException("left", "AbortError")));
    const shown = progress("Sweep", { onCancel: () => stop.abort(new DOMException("cancelled", "AbortError")) });
    put(running, shown.element);
    const results = [];
    try {
      for (const [index, factor] of list.entries()) {
        const onProgress = (job) => shown.update({ state: "running", phase: `plan ${index + 1} of ${list.length}`, share: (index + (job.share ?? 0)) / list.length });
        results.push({ factor, ...(await solve("v1/plans", requests[index], { signal: stop.signal, onProgress })) });
        put(holder, drawn(results, which, record));
      }
    } finally {
      shown.end();
      if (results.length && !signal.aborted) {
        const next = new URLSearchParams({ base, axis: which, plans: results.map((each) => `${each.factor}:${each.id}`).join(",") });
        history.replaceState(null, "", `#/plans/sweep?${next}`);
      }
    }
  }

  return [
    head,
    h("section", { class: "card gap", "aria-label": "Sweep" }, h("div", { class: "fields" }, field("Request of plan", chosenBase), field("Multiply", chosenAxis), field("By", factors, { hint: `up to ${MAX_POINTS} factors` })), h("p", {}, start)),
    running,
    holder,
  ];
}

const points = (text) =>
  (text ?? "")
    .split(",")
    .map((each) => each.split(":"))
    .filter(([factor, id]) => Number(factor) > 0 && /^[0-9a-f-]{36}$/.test(id ?? ""))
    .slice(0, MAX_POINTS)
    .map(([factor, id]) => ({ factor: Number(factor), id }));

export function scaled(request, axis, factor) {
  const copy = structuredClone(request);
  for (const workload of copy.workloads) {
    if (axis === "rate") {
      if (typeof workload.rate_rps !== "number") throw new Error(`workload ${workload.name} has a series of rates; sweep it with \`fleetwright sweep\``);
      workload.rate_rps *= factor;
    } else {
      if (!workload.slo || workload.options) throw new Error(`workload ${workload.name} has given rates, which do not depend on the limits`);
      for (const metric of METRICS) for (const statistic of Object.keys(workload.slo[metric] ?? {})) workload.slo[metric][statistic] *= factor;
    }
  }
  return copy;
}

const rate = (record) => record.request.workloads.reduce((total, workload) => total + (workload.rate_rps ?? 0), 0);

// A point is on the front if no other has at least its load (or at most its limits) at no higher cost.
function front(found, axis) {
  const usable = found.filter((each) => each.plan.cost_usd_per_h !== null && each.plan.verified !== false);
  const value = (each) => (axis === "rate" ? each.factor : -each.factor);
  return usable.filter(
    (one) => !usable.some((other) => other !== one && value(other) >= value(one) && other.plan.cost_usd_per_h <= one.plan.cost_usd_per_h && (value(other) > value(one) || other.plan.cost_usd_per_h < one.plan.cost_usd_per_h)),
  );
}

function drawn(found, axis, base) {
  if (!found.length) return null;
  const best = new Set(front(found, axis));
  const x = (each) => (axis === "rate" ? rate(each) : each.factor);
  const xName = axis === "rate" ? "Requests per second" : "Latency limits, as a multiple of the plan's";
  const plotted = found.filter((each) => each.plan.cost_usd_per_h !== null);
  return [
    plotted.length
      ? card(
          "Cost against load and limits",
          scatter(
            `Cost of ${plural(plotted.length, "plan")} by ${xName.toLowerCase()}`,
            plotted.map((each) => ({ x: x(each), y: each.plan.cost_usd_per_h, front: best.has(each), href: `#/plans/${each.id}`, label: `${num(x(each))}: ${usd(each.plan.cost_usd_per_h)} per hour${best.has(each) ? ", on the Pareto front" : ""}` })),
            { xText: xName, yText: "$ per hour", yFormat: (value) => num(value, 1) },
          ),
          h("p", { class: "note muted" }, "Filled points are on the Pareto front: no other plan serves as much within as tight limits at no higher cost."),
        )
      : null,
    card(
      "Plans",
      table(
        "Plans of the sweep",
        [
          { head: "Factor", number: true, cell: (each) => num(each.factor, 3) },
          { head: "Requests/s", number: true, cell: (each) => num(rate(each)) },
          { head: "Plan", cell: (each) => link(`#/plans/${each.id}`, h("code", {}, short(each.id))) },
          { head: "Result", cell: (each) => badge(each.plan.status) },
          { head: "Front", cell: (each) => (best.has(each) ? badge("Pareto", { tone: "good" }) : "") },
          { head: "$/h", number: true, cell: (each) => usd(each.plan.cost_usd_per_h) },
          { head: "$ per million requests", number: true, cell: (each) => (each.plan.cost_usd_per_h === null || !rate(each) ? "–" : usd((each.plan.cost_usd_per_h / 3600 / rate(each)) * 1e6)) },
          { head: "Power", number: true, cell: (each) => watts(each.plan.power_w) },
          { head: "", cell: (each) => (each.id === base.id ? "" : link(`#/plans/compare?a=${base.id}&b=${each.id}`, "compare")) },
        ],
        found,
      ),
    ),
  ];
}
