// Sweep: plan one request at several rates or latency limits, and see the Pareto front of load or limits against cost.
// The service stores the sweep; the address holds its id, so that a reload shows it again.

import { page as readPage, result, solve } from "../lib/api.js";
import { scatter } from "../lib/charts.js";
import { h, put } from "../lib/dom.js";
import { num, plural, short, usd, watts } from "../lib/format.js";
import { shortened } from "../lib/schema.js";
import { action, badge, card, empty, field, input, link, progress, select, table, time } from "../lib/ui.js";

const AXES = [
  ["rate", "request rate"],
  ["slo", "latency limits"],
];
const FACTORS = { rate: "0.25, 0.5, 0.75, 1, 1.5, 2", slo: "0.5, 0.75, 1, 1.5, 2, 3" };
const MAX_POINTS = 100;

export async function page(context) {
  context.title = "Sweep";
  const { query, signal } = context;
  const [recent, sweeps] = await Promise.all([readPage("v1/plans", { limit: 200, signal }), readPage("v1/sweeps", { limit: 10, signal })]);
  const shown = query.get("sweep") ? await result(`v1/sweeps/${query.get("sweep")}`, signal) : null;
  const base = query.get("base") ?? recent.items.find((plan) => plan.cost_usd_per_h !== null)?.id;
  const head = h("div", { class: "head" }, h("p", { class: "crumbs" }, link("#/plans", "Plans"), " / sweep"), h("h1", {}, "Sweep"), h("p", { class: "lead" }, "Plan one request several times, with its rate or its latency limits multiplied by each factor."));
  if (!base && !shown) return [head, empty("There is no plan to start from.", h("div", { class: "buttons" }, h("a", { class: "button primary", href: "#/plans/new" }, "New plan")))];
  const axis = query.get("axis") === "slo" ? "slo" : "rate";
  const holder = h("div", { class: "rows gap" }, shown && drawn(shown));
  const running = h("div", {});

  const bases = recent.items.map((plan) => [plan.id, `${short(plan.id)} · ${plan.cost_usd_per_h === null ? plan.status : usd(plan.cost_usd_per_h)}`]);
  if (base && !bases.some(([id]) => id === base)) bases.push([base, short(base)]);
  const chosenBase = select(bases, { value: base, onchange: () => (location.hash = `#/plans/sweep?base=${chosenBase.value}&axis=${axis}`) });
  const chosenAxis = select(AXES, { value: axis, onchange: () => (factors.value = FACTORS[chosenAxis.value]) });
  const factors = input({ value: shown?.request.axes[0].factors.join(", ") ?? FACTORS[axis] });
  const start = action("Run the sweep", run, { scope: "plan", kind: "primary" });

  async function run() {
    const list = [...new Set(factors.value.split(/[\s,;]+/).filter(Boolean).map(Number))].sort((a, b) => a - b);
    if (!list.length || list.length > MAX_POINTS || list.some((factor) => !(factor > 0))) throw new Error(`factors: allowed are 1 to ${MAX_POINTS} numbers above 0`);
    const knob = chosenAxis.value;
    const request = await shortened((await result(`v1/plans/${chosenBase.value}`, signal)).request, "PlanRequest");
    const stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort(new DOMException("left", "AbortError")));
    const bar = progress("Sweep", { onCancel: () => stop.abort(new DOMException("cancelled", "AbortError")) });
    put(running, bar.element);
    try {
      const made = await solve("v1/sweeps", { request, axes: [{ knob, factors: list }] }, { signal: stop.signal, onProgress: (job) => bar.update(job) });
      put(holder, drawn(made));
      history.replaceState(null, "", `#/plans/sweep?${new URLSearchParams({ base: chosenBase.value, axis: knob, sweep: made.id })}`);
    } finally {
      bar.end();
    }
  }

  return [
    head,
    h("section", { class: "card gap", "aria-label": "Sweep" }, h("div", { class: "fields" }, field("Request of plan", chosenBase), field("Multiply", chosenAxis), field("By", factors, { hint: `up to ${MAX_POINTS} factors` })), h("p", {}, start)),
    running,
    holder,
    sweeps.items.length
      ? card(
          "Stored sweeps",
          table(
            "The newest sweeps",
            [
              { head: "Sweep", cell: (each) => link(`#/plans/sweep?${new URLSearchParams({ ...(base ? { base } : {}), sweep: each.id })}`, h("code", {}, short(each.id))) },
              { head: "Made", cell: (each) => time(each.created_at) },
              { head: "Over", cell: (each) => each.over },
              { head: "Points", number: true, cell: (each) => num(each.points) },
              { head: "Failed", number: true, cell: (each) => num(each.failed) },
            ],
            sweeps.items,
          ),
        )
      : null,
  ];
}

const named = (axis) => (axis.subject ? `${axis.knob}:${axis.subject}` : axis.knob);

function drawn({ request, sweep }) {
  const [first] = request.axes;
  const names = request.axes.map(named);
  const workloads = request.request.workloads;
  // Requests per second, where the first axis scales all of them; else its factor.
  const rates = first.knob === "rate" && !first.subject && workloads.every((each) => typeof each.rate_rps === "number");
  const base = workloads.reduce((total, each) => total + (each.rate_rps ?? 0), 0);
  const x = (each) => each.factors[names[0]] * (rates ? base : 1);
  const xName = rates ? "Requests per second" : `Factor of ${names[0]}`;
  const at = (each) => names.map((name) => `${name} x ${num(each.factors[name], 3)}`).join(", ");
  const plotted = sweep.points.filter((each) => each.cost_usd_per_h !== null);
  return [
    plotted.length
      ? card(
          "Cost against load and limits",
          scatter(
            `Cost of ${plural(plotted.length, "point")} by ${xName.toLowerCase()}`,
            plotted.map((each) => ({ x: x(each), y: each.cost_usd_per_h, front: each.pareto, label: `${at(each)}: ${usd(each.cost_usd_per_h)} per hour${each.pareto ? ", on the Pareto front" : ""}` })),
            { xText: xName, yText: "$ per hour", yFormat: (value) => num(value, 1) },
          ),
          h("p", { class: "note muted" }, "Filled points are on the Pareto front: no other point serves as much within as tight limits at no higher cost."),
        )
      : null,
    card(
      "Points",
      table(
        "Points of the sweep",
        [
          ...names.map((name) => ({ head: name === "rate" ? "Rate factor" : name, number: true, cell: (each) => num(each.factors[name], 3) })),
          rates && { head: "Requests/s", number: true, cell: (each) => num(x(each)) },
          { head: "Result", cell: (each) => badge(each.status) },
          { head: "Front", cell: (each) => (each.pareto ? badge("Pareto", { tone: "good" }) : "") },
          { head: "$/h", number: true, cell: (each) => usd(each.cost_usd_per_h) },
          rates && { head: "$ per million requests", number: true, cell: (each) => (each.cost_usd_per_h === null || !x(each) ? "–" : usd((each.cost_usd_per_h / 3600 / x(each)) * 1e6)) },
          { head: "Power", number: true, cell: (each) => watts(each.power_w) },
          { head: "Mix", wide: true, cell: (each) => each.mix },
        ].filter(Boolean),
        sweep.points,
      ),
    ),
    sweep.failed.length
      ? card(
          "Failed points",
          table("Points that could not be planned", [{ head: "Point", cell: at }, { head: "Reason", wide: true, cell: (each) => each.reason }], sweep.failed),
        )
      : null,
  ];
}
