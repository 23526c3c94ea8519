// Compare a plan with another one, or with what runs now on a target.

import { list, page as readPage, read, result } from "../lib/api.js";
import { bars } from "../lib/charts.js";
import { h } from "../lib/dom.js";
import { at, num, percent, short, signed, usd, watts } from "../lib/format.js";
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
  const text = (plan) => `${at(plan.created_at)} · ${short(plan.id)} · ${plan.cost_usd_per_h === null ? plan.status : `${usd(plan.cost_usd_per_h)}/h`}`;
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
  const record = await result(`v1/plans/${first}`, signal);
  if (name) return [head, h("div", { class: "rows" }, withTarget(record, await readTarget(await read(`v1/targets/${name}`, signal), signal)))];
  if (b) return [head, h("div", { class: "rows" }, withPlan(record, await result(`v1/plans/${b}`, signal)))];
  return [head, empty("Choose a second plan, or a target to compare with what runs now.")];
}

const gpus = (plan) => plan.allocation.reduce((total, entry) => total + entry.count * entry.gpus_per_replica, 0);
const replicas = (plan) => plan.allocation.reduce((total, entry) => total + entry.count, 0);
const worstLimit = (plan) => (plan.proofs.length ? Math.max(...plan.proofs.flatMap((proof) => proof.slo_check.limits.map((limit) => limit.measured_ms / limit.limit_ms))) : null);

function withPlan({ plan: one, id, request }, { plan: other, id: otherId, request: otherRequest }) {
  const rows = [
    ["Result", badge(one.status), badge(other.status), ""],
    ["Cost per hour", usd(one.cost_usd_per_h), usd(other.cost_usd_per_h), difference(one.cost_usd_per_h, other.cost_usd_per_h, usd)],
    ["Power at full load", watts(one.power_w), watts(other.power_w), difference(one.power_w, other.power_w, watts)],
    ["Replicas", num(replicas(one)), num(replicas(other)), difference(replicas(one), replicas(other), num)],
    ["GPUs", num(gpus(one)), num(gpus(other)), difference(gpus(one), gpus(other), num)],
    ["Latency nearest to its limit", percent(worstLimit(one)), percent(worstLimit(other)), difference(worstLimit(one), worstLimit(other), percent)],
  ];
  const key = (entry) => `${entry.workload}\n${entry.option}`;
  const counts = (plan) => new Map(plan.allocation.map((entry) => [key(entry), entry]));
  const [left, right] = [counts(one), counts(other)];
  const mixed = [...new Set([...left.keys(), ...right.keys()])].map((each) => {
    const entry = left.get(each) ?? right.get(each);
    return { entry, a: left.get(each)?.count ?? 0, b: right.get(each)?.count ?? 0 };
  });
  const top = Math.max(...Object.values(costsByGpu(one)), ...Object.values(costsByGpu(other)), Number.MIN_VALUE);
  return [
    card("Figures", figureTable(rows, link(`#/plans/${id}`, short(id)), link(`#/plans/${otherId}`, short(otherId)))),
    card(
      "Mix",
      table(
        "Replicas of both plans",
        [
          { head: "Option", cell: (row) => row.entry.option },
          { head: "Workload", cell: (row) => row.entry.workload },
          { head: "GPU", cell: (row) => row.entry.gpu },
          { head: "First", number: true, cell: (row) => num(row.a) },
          { head: "Second", number: true, cell: (row) => num(row.b) },
          { head: "Difference", number: true, cell: (row) => change(row.b - row.a) },
        ],
        mixed,
      ),
    ),
    card("Cost per hour by GPU type", byGpu(one, "first", top), byGpu(other, "second", top)),
    card("Requests", requestDifferences(request, otherRequest)),
  ];
}

function costsByGpu(plan) {
  const costs = {};
  const gpuOf = (hire) => plan.allocation.find((entry) => (entry.offer === null ? `${entry.workload}/${entry.option}` === hire.name : entry.offer === hire.offer))?.gpu ?? hire.name;
  for (const hire of plan.hires) costs[gpuOf(hire)] = (costs[gpuOf(hire)] ?? 0) + hire.cost_usd_per_h;
  return costs;
}

function byGpu(plan, which, max) {
  const costs = costsByGpu(plan);
  return [h("h3", {}, `The ${which}: ${usd(plan.cost_usd_per_h)}`), bars(`Cost per hour by GPU type of the ${which}`, Object.entries(costs).map(([label, value]) => ({ label, value, text: usd(value), series: which === "first" ? 0 : 2 })), { max })];
}

function requestDifferences(one, other) {
  const flat = (value, path = "", found = {}) => {
    if (value !== null && typeof value === "object") for (const [key, item] of Object.entries(value)) flat(item, Array.isArray(value) ? `${path}[${key}]` : path ? `${path}.${key}` : key, found);
    else if (value !== null) found[path] = value;
    return found;
  };
  const [left, right] = [flat(one), flat(other)];
  const rows = [...new Set([...Object.keys(left), ...Object.keys(right)])].filter((path) => left[path] !== right[path]).slice(0, 200);
  return table(
    "Fields of the requests that differ",
    [
      { head: "Field", cell: (path) => h("code", {}, path) },
      { head: "First", wide: true, cell: (path) => String(left[path] ?? "–").slice(0, 120) },
      { head: "Second", wide: true, cell: (path) => String(right[path] ?? "–").slice(0, 120) },
    ],
    rows,
    { none: "Both requests are the same; the catalogues or the time may differ." },
  );
}

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
