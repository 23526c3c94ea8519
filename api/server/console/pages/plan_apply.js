// Apply a plan: choose a target, see what would change, point the target at the plan, and approve the change set that
// the controller then reports.

import { call, list, result } from "../lib/api.js";
import { announce, h } from "../lib/dom.js";
import { short, words } from "../lib/format.js";
import { live } from "../lib/live.js";
import { partsOf, planned } from "../lib/parts.js";
import { action, badge, card, check, empty, facts, field, link, select, time } from "../lib/ui.js";
import { changeSet, readTarget } from "./fleet.js";
import { leftOver, partTable } from "./plan_compare.js";

const MODES = [
  ["observe", "observe: the controller only reads"],
  ["recommend", "recommend: it reports the change set"],
  ["apply", "apply: it executes the change set"],
];
const DONE = new Set(["applied", "failed", "rolled_back"]);

export async function page(context) {
  const { id } = context.params;
  context.title = `Apply plan ${short(id)}`;
  const [record, targets] = await Promise.all([result(`v1/plans/${id}`, context.signal), list("v1/targets", { signal: context.signal })]);
  const workloads = new Set(record.plan.allocation.map((entry) => entry.workload));
  const fitting = targets.filter((target) => workloads.has(target.spec.workload));
  const head = h("div", { class: "head" }, h("p", { class: "crumbs" }, link("#/plans", "Plans"), " / ", link(`#/plans/${id}`, h("code", {}, id)), " / apply"), h("h1", {}, "Apply the plan"));
  if (!fitting.length) {
    const text = targets.length ? `No target serves a workload of this plan (${[...workloads].join(", ")}).` : "There is no target yet. Create one with `fleetwright targets put`.";
    return [head, card("Target", empty(text))];
  }
  const wanted = context.query.get("target");
  const chosen = fitting.find((target) => target.name === wanted) ?? fitting[0];
  const choice = select(fitting.map((target) => [target.name, `${target.name} (workload ${target.spec.workload})`]), {
    value: chosen.name,
    onchange: () => (location.hash = `#/plans/${id}/apply?target=${choice.value}`),
  });
  const { data, etag } = await call("GET", `v1/targets/${chosen.name}`, { signal: context.signal });
  const target = await readTarget(data, context.signal);
  return [head, h("ol", { class: "steps" }, h("li", {}, card("Target", h("div", { class: "fields" }, field("Target", choice, { wide: true })))), h("li", {}, difference()), h("li", {}, await report()))];

  function difference() {
    const { spec, status } = target;
    const counts = (plan) => Object.fromEntries(Object.entries(planned(plan, spec).parts).map(([part, found]) => [part, found.replicas]));
    const running = status?.applied ?? {};
    const isSet = spec.plan_id === id;
    const mode = select(MODES, { value: spec.mode });
    let approval = spec.require_approval;
    const point = async () => {
      const changed = { ...spec, plan_id: id, mode: mode.value, require_approval: approval };
      await call("PUT", `v1/targets/${target.name}`, { body: changed, headers: { "If-Match": etag } });
      announce(`${target.name} now has this plan`);
      context.rerender();
    };
    return card(
      "What changes",
      status ? null : h("p", { class: "muted" }, "The controller has not reported on this target yet, so what runs is not known."),
      partTable(Object.keys({ ...partsOf(spec.application), ...running }), running, counts(record.plan), target.plan && !isSet ? counts(target.plan) : null),
      leftOver(planned(record.plan, spec).left, spec),
      h("div", { class: "fields" }, field("Mode", mode, { wide: true }), h("div", { class: "field wide" }, check("Require an approval of each change set", { checked: approval, onchange: (on) => (approval = on) }))),
      h(
        "div",
        { class: "buttons" },
        isSet ? badge("set", { tone: "good", text: "The target has this plan" }) : null,
        action(isSet ? "Save mode and approval" : "Point the target at this plan", point, {
          scope: "operate",
          kind: isSet ? "" : "primary",
          confirm: isSet ? null : { title: `Point ${target.name} at this plan?`, text: "The controller adapts the target from its next reconcile, within the mode and the approval that you chose.", yes: "Point at the plan" },
        }),
      ),
    );
  }

  async function report() {
    if (target.spec.plan_id !== id) return card("Change set and approval", h("p", { class: "muted" }, "The controller reports the change set after the target has the plan."));
    let last = null;
    const content = await live(
      context,
      (signal) => readTarget(target, signal),
      (found) => {
        const { status, spec } = found;
        const isOld = !status || status.plan_id !== spec.plan_id;
        const state = isOld ? "waits for the controller's next report" : words(status.phase);
        if (last !== null && last !== state) announce(`${target.name}: ${state}`);
        last = state;
        return [
          facts([
            ["State", isOld ? badge("waiting", { tone: "busy", text: state }) : badge(status.phase)],
            ["Report", time(status?.observed_at)],
            status?.message ? ["Message", status.message] : null,
          ]),
          isOld ? null : changeSet(found, () => content.redraw()),
          isOld || !DONE.has(status.phase) ? null : h("p", {}, link(`#/targets/${target.name}`, `See ${target.name}`)),
        ];
      },
      { everyMs: 1500 },
    );
    return card("Change set and approval", content);
  }
}
