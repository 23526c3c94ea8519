// Plans: the stored plans, newest first, with links to compare two of them.

import { page as readPage, query } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { short, usd } from "../lib/format.js";
import { badge, card, field, input, link, paged, select, table, time } from "../lib/ui.js";

const FILTERS = ["name", "labels", "status"];
const STATUSES = [["", "any"], ["optimal", "optimal"], ["feasible", "feasible"], ["infeasible", "infeasible"], ["time_limit", "time limit"]];

export async function overview(context) {
  context.title = "Plans";
  const chosen = new Set();
  const compare = h("button", { type: "button", disabled: true, onclick: open }, "Compare two");
  function open() {
    const [a, b] = [...chosen];
    location.hash = `#/plans/compare?a=${b}&b=${a}`;
  }
  const box = (plan) =>
    h("input", {
      type: "checkbox",
      "aria-label": `Choose plan ${plan.id} for a comparison`,
      checked: chosen.has(plan.id) || null,
      onchange(event) {
        if (event.target.checked) chosen.add(plan.id);
        else chosen.delete(plan.id);
        compare.disabled = chosen.size !== 2;
      },
    });
  const filters = Object.fromEntries(FILTERS.map((key) => [key, context.query.get(key) ?? ""]));
  const choose = (key) => (event) => (location.hash = `#/plans?${query({ ...filters, [key]: event.target.value.trim() })}`);
  const columns = [
    { head: "Name", cell: (plan) => [plan.name ?? "–", ...Object.entries(plan.labels).map(([key, value]) => [" ", h("code", {}, `${key}=${value}`)])] },
    { head: "Plan", cell: (plan) => link(`#/plans/${plan.id}`, h("code", {}, short(plan.id))) },
    { head: "Created", cell: (plan) => time(plan.created_at) },
    { head: "By", cell: (plan) => plan.created_by },
    { head: "Result", cell: (plan) => badge(plan.status) },
    { head: "$/h", number: true, cell: (plan) => usd(plan.cost_usd_per_h) },
    { head: h("span", { class: "hidden" }, "Compare"), cell: box },
  ];
  const found = await paged(
    (cursor) => readPage("v1/plans", { limit: 50, cursor, chosen: filters, signal: context.signal }),
    (items) => table("Stored plans, newest first", columns, items),
    { none: Object.values(filters).some(Boolean) ? "No plan fits these filters." : "No plan yet. Describe your workloads, and the planner finds the cheapest GPUs for them." },
  );
  return [
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Plans"),
      h("div", { class: "buttons" }, compare, h("a", { class: "button", href: "#/plans/sweep" }, "Sweep"), h("a", { class: "button primary", href: "#/plans/new" }, "New plan")),
      h("p", { class: "lead" }, "A plan answers which GPUs serve a load within its latency limits at the least cost."),
    ),
    card(
      "Stored plans",
      h(
        "div",
        { class: "fields" },
        field("Name begins with", input({ value: filters.name, onchange: choose("name") })),
        field("Labels", input({ value: filters.labels, placeholder: "team=search,tier", onchange: choose("labels") })),
        field("Result", select(STATUSES, { value: filters.status, onchange: choose("status") })),
      ),
      found,
    ),
  ];
}
