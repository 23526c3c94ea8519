// Compare a plan with another one, or with what runs now on a target.

import { list, page as readPage, read, result } from "../lib/api.js";
import { bars } from "../lib/charts.js";
import { h } from "../lib/dom.js";
import { at, ms, num, percent, short, signed, usd, watts, words } from "../lib/format.js";
import { figures, partsOf, planned, sum } from "../lib/parts.js";
import { badge, card, empty, field, link, select, table } from "../lib/ui.js";
import { readTarget } from "./fleet.js";

export async function page(context) {
  context.title = "Compare plans";
  const { query, signal } = context;
  const [a, b, name] = ["a", "b", "target"].map((key) => query.get(key));
  const [recent, targets] = await Promise.all([readPage("v1/plans", { limit: 200, signal }), list("v1/targets", { signal })]);
  const first = a ?? recent.items[0]?.id;
  const go = (changes) => {
    const next = new URLSearchParams(Object.entries({ a: first, b, target: name, ...changes }).filter(([, value]) => value));
    location.hash = `#/plans/compare?${next}`;
  };
  const text = (plan) => `${plan.name ? `${plan.name} · ` : ""}${at(plan.created_at)} · ${short(plan.id)} · ${plan.cost_usd_per_h === null ? plan.status : `${usd(plan.cost_usd_per_h)}/h`}`;
  const options = recent.items.map((plan) => [plan.id, text(plan)]);
  for (const id of [first, b]) if (id && !options.some(([each]) => each === id)) options.push([id, short(id)]);
  const left = select(options, { value: first, onchange: () => go({ a: left.value }) });
  const others = [["", "choose …"], ...options.filter(([id]) => id !== first).map(([id, label]) => [`plan:${id}`, label]), ...targets.map((each) => [`target:${each.name}`, `now on target ${each.name}`])];
  const right = select(others, {
    value: name ? `target:${name}` : b ? `plan:${b}` : "",
    onchange() {
      const [kind, ...rest] = right.value.split(":");
      const value = rest.join(":");
      go(kind === "target" ? { target: value, b: null } : { b: value, target: null });
    },
  });
  const head = [
    h("div", { class: "head" }, h("p", { class: "crumbs" }, link("#/plans", "Plans"), " / compare"), h("h1", {}, "Compare")),
    h("section", { class: "card gap", "aria-label": "What to compare" }, h("div", { class: "columns" }, field("Plan", left), field("With", right))),
  ];
  if (!first) return [head, empty("There is no plan yet.")];
  if (name) {
    const [record, target] = await Promise.all([result(`v1/plans/${first}`, signal), read(`v1/targets/${name}`, signal)]);
    return [head, h("div", { class: "rows" }, withTarget(record, await readTarget(target, signal)))];
  }
  if (b) return [head, h("div", { class: "rows" }, withPlan(await result(`v1/plans/${first}/comparison?with=${b}`, signal), first, b))];
  return [head, empty("Choose a second plan, or a target to compare with what runs now.")];
}

function withPlan(found, id, otherId) {
  const rows = [
    ["Result", badge(found.status_before), badge(found.status_after), ""],
    figure("Cost per hour", found.cost_usd_per_h, usd),
    figure("Power at full load", found.power_w, watts),
    figure("Replicas", found.replicas, num),
    figure("GPUs", found.gpus, num),
    figure("Latency nearest to its limit", found.nearest_limit, percent),
  ];
  return [
    card("Figures", figureTable(rows, link(`#/plans/${id}`, short(id)), link(`#/plans/${otherId}`, short(otherId)))),
    card(
      "Mix",
      table(
        "Replicas of both plans",
        [
          { head: "Option", cell: (row) => row.option },
          { head: "Workload", cell: (row) => row.workload },
          { head: "GPU", cell: (row) => row.gpu },
          { head: "First", number: true, cell: (row) => num(row.before) },
          { head: "Second", number: true, cell: (row) => num(row.after) },
          { head: "Difference", number: true, cell: (row) => change(row.after - row.before) },
        ],
        found.mix,
      ),
    ),
    card("Cost per hour by GPU type", byGpu(found, "before"), byGpu(found, "after")),
    found.latencies.length ? card("Latencies, measured in the replays", latencies(found.latencies)) : null,
    card("Routing", routing(found)),
    card("Requests", requestDifferences(found.request)),
  ];
}

const figure = (name, { before, after, difference }, format) => [name, format(before), format(after), difference === null ? "–" : signed(difference, format)];

function byGpu({ cost_usd_per_h: total, gpus_by_type: types }, side) {
  const max = Math.max(...types.flatMap(({ cost_usd_per_h: { before, after } }) => [before, after]), Number.MIN_VALUE);
  const which = side === "before" ? "first" : "second";
  const shown = types.filter((type) => type.cost_usd_per_h[side] > 0).map(({ gpu, cost_usd_per_h }) => ({ label: gpu, value: cost_usd_per_h[side], text: usd(cost_usd_per_h[side]), series: side === "before" ? 0 : 2 }));
  return [h("h3", {}, `The ${which}: ${usd(total[side])}`), bars(`Cost per hour by GPU type of the ${which}`, shown, { max })];
}

const latencies = (rows) =>
  table(
    "Latencies of both plans",
    [
      { head: "Workload", cell: (row) => row.workload },
      { head: "Limit", cell: (row) => `${row.statistic} ${words(row.metric)}` },
      { head: "Allowed", number: true, cell: (row) => ms(row.limit_ms.after ?? row.limit_ms.before) },
      { head: "First", number: true, cell: (row) => ms(row.measured_ms.before) },
      { head: "Second", number: true, cell: (row) => ms(row.measured_ms.after) },
      { head: "Held", cell: (row) => [row.holds_before, row.holds_after].map((holds) => (holds === null ? "not replayed" : holds ? "yes" : "no")).join(" / ") },
    ],
    rows,
  );

const routing = ({ routes, routing: differing }) =>
  table(
    "Share of the requests that each route serves",
    [
      { head: "Workload", cell: (row) => row.workload },
      { head: "Route", cell: (row) => row.route },
      { head: "First", number: true, cell: (row) => percent(row.before) },
      { head: "Second", number: true, cell: (row) => percent(row.after) },
    ],
    differing.length ? routes : [],
    { none: "Both plans send each request the same way." },
  );

const requestDifferences = (rows) =>
  table(
    "Fields of the requests that differ",
    [
      { head: "Field", cell: (row) => h("code", {}, row.path) },
      { head: "First", wide: true, cell: (row) => row.before ?? "–" },
      { head: "Second", wide: true, cell: (row) => row.after ?? "–" },
    ],
    rows,
    { none: "Both requests are the same; the catalogues or the time may differ." },
  );

function withTarget({ plan, id }, target) {
  const { spec, status, name } = target;
  if (!status) return empty(`The controller has not reported on ${name} yet.`);
  const { parts, left } = planned(plan, spec);
  const goal = Object.fromEntries(Object.entries(parts).map(([part, found]) => [part, found.replicas]));
  const now = figures(target.plan ?? plan, spec, status.applied);
  const then = figures(plan, spec, goal);
  const rows = [
    ["Cost per hour", usd(then.usd), usd(now.usd), difference(now.usd, then.usd, usd)],
    ["Power at full load", watts(then.w), watts(now.w), difference(now.w, then.w, watts)],
    ["Replicas", num(sum(goal)), num(sum(status.applied)), difference(sum(status.applied), sum(goal), num)],
  ];
  return [
    card("Figures", figureTable(rows, link(`#/plans/${id}`, short(id)), link(`#/targets/${name}`, `now on ${name}`))),
    card("Replicas of each part", partTable(Object.keys({ ...partsOf(spec.application), ...status.applied }), status.applied, goal)),
    leftOver(left, spec),
  ];
}

export const leftOver = (left, spec) =>
  left.length ? h("div", { class: "banner warn" }, h("span", {}, h("strong", {}, "No part of the target takes these replicas: "), left.map((entry) => `${entry.count} × ${entry.gpu} (${entry.option})`).join(", "), `. Parts: ${Object.keys(partsOf(spec.application)).join(", ")}.`)) : null;

export const partTable = (parts, now, goal, before = null) =>
  table(
    "Replicas of each part",
    [
      { head: "Part", cell: (part) => part },
      { head: "Running", number: true, cell: (part) => num(now[part] ?? 0) },
      before && { head: "Current plan", number: true, cell: (part) => num(before[part] ?? 0) },
      { head: "This plan", number: true, cell: (part) => num(goal[part] ?? 0) },
      { head: "Change", number: true, cell: (part) => change((goal[part] ?? 0) - (now[part] ?? 0)) },
    ].filter(Boolean),
    parts,
  );

const change = (value) => h("span", { class: value > 0 ? "added" : value < 0 ? "removed" : "muted" }, signed(value));
const difference = (from, to, format) => (from === null || to === null ? "–" : signed(to - from, format));

const figureTable = (rows, first, second) =>
  table(
    "Figures of both sides",
    [
      { head: "Figure", cell: ([name]) => name },
      { head: first, number: true, cell: ([, value]) => value },
      { head: second, number: true, cell: ([, , value]) => value },
      { head: "Difference", number: true, cell: ([, , , value]) => value },
    ],
    rows,
  );
