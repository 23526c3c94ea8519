// Fleet: targets, what is planned for them against what runs, $/h, watts, health, and the freeze.

import { call, find, list, read, result } from "../lib/api.js";
import { h, newId } from "../lib/dom.js";
import { num, plural, short, signed, usd, watts, words } from "../lib/format.js";
import { each, live } from "../lib/live.js";
import { figures, partsOf, planned, sum } from "../lib/parts.js";
import { loopsCard, readLoops } from "./planning_loops.js";
import { action, openDialog, badge, card, facts, field, input, link, table, tile, tiles, time } from "../lib/ui.js";

export const readFreeze = async (signal) => {
  const { data, etag } = await call("GET", "v1/freeze", { signal });
  return { ...data, etag };
};

const reports = async (signal) => new Map((await list("v1/target-statuses", { signal })).map((each) => [each.target, each.status]));

// A target with its last report and its plan; null where there is none. A target is read alone once it has a report,
// because an answer "not found" is an error on the browser's console.
const reported = new Set();
export async function readTarget(target, signal) {
  const status = reported.has(target.name) ? await find(`v1/targets/${target.name}/status`, signal) : ((await reports(signal)).get(target.name) ?? null);
  if (status) reported.add(target.name);
  return withPlan(target, status, signal);
}

async function withPlan(target, status, signal) {
  const id = target.spec.plan_id;
  const record = id === null ? null : await result(`v1/plans/${id}`, signal).catch(() => null);
  return { ...target, status, plan: record?.plan ?? null };
}

function summary(target) {
  const { spec, status, plan } = target;
  const running = status?.applied ?? {};
  const goal = plan ? Object.fromEntries(Object.entries(planned(plan, spec).parts).map(([part, found]) => [part, found.replicas])) : (status?.planned ?? {});
  const drift = Object.keys({ ...goal, ...running }).reduce((total, part) => total + Math.abs((goal[part] ?? 0) - (running[part] ?? 0)), 0);
  return { running, goal, drift, now: plan ? figures(plan, spec, running) : { usd: null, w: null }, then: plan ? figures(plan, spec, goal) : { usd: null, w: null } };
}

export async function overview(context) {
  context.title = "Fleet";
  const load = async (signal) => {
    const [freeze, targets, statuses, loops] = await Promise.all([readFreeze(signal), list("v1/targets", { signal }), reports(signal), readLoops(signal)]);
    return { freeze, loops, targets: await each(targets, (target) => withPlan(target, statuses.get(target.name) ?? null, signal)) };
  };
  const content = await live(context, load, (data) => draw(data, () => content.redraw()));
  return [
    h("div", { class: "head" }, h("h1", {}, "Fleet"), h("p", { class: "lead" }, "Every target: what its plan asks for, what runs, and what the controller reports.")),
    content,
  ];
}

function draw({ freeze, loops, targets }, redraw) {
  const rows = targets.map((target) => ({ ...target, ...summary(target) }));
  const total = (pick) => rows.reduce((all, row) => all + (pick(row) ?? 0), 0);
  const attention = rows.filter((row) => row.status && ["failed", "awaiting_approval", "rolling_back", "rolled_back"].includes(row.status.phase));
  return [
    freezeBanner(freeze, redraw),
    tiles(
      tile("Targets", num(rows.length), attention.length ? `${attention.length} need attention` : "none needs attention"),
      tile("Replicas", `${num(total((row) => sum(row.running)))} / ${num(total((row) => sum(row.goal)))}`, "running / planned"),
      tile("Drift", num(total((row) => row.drift)), "replicas to start or stop"),
      tile("Cost", usd(total((row) => row.now.usd)), `per hour; planned ${usd(total((row) => row.then.usd))}`),
      tile("Power", watts(total((row) => row.now.w)), `at full load; planned ${watts(total((row) => row.then.w))}`),
    ),
    card(
      "Targets",
      table("Targets", COLUMNS, rows, {
        none: "No target yet. A target is a running application that the controller adapts to plans; create one with `fleetwright targets put`.",
      }),
      rows.length ? h("p", { class: "note muted" }, "$/h and W are shares of the hired units and of full load, from each target's plan.") : null,
    ),
    loopsCard(loops),
  ];
}

const COLUMNS = [
  { head: "Target", cell: (row) => link(`#/targets/${row.name}`, row.name) },
  { head: "Workload", cell: (row) => row.spec.workload },
  { head: "State", cell: (row) => (row.status ? badge(row.status.phase) : badge("no report", { tone: "plain" })) },
  { head: "Mode", cell: (row) => row.spec.mode },
  { head: "Running", number: true, cell: (row) => num(sum(row.running)) },
  { head: "Planned", number: true, cell: (row) => num(sum(row.goal)) },
  { head: "Drift", number: true, cell: (row) => (row.drift ? h("strong", { class: "wrong" }, num(row.drift)) : "0") },
  { head: "$/h now", number: true, cell: (row) => usd(row.now.usd) },
  { head: "$/h planned", number: true, cell: (row) => usd(row.then.usd) },
  { head: "Power", number: true, cell: (row) => watts(row.now.w) },
  { head: "Plan", cell: (row) => (row.spec.plan_id ? link(`#/plans/${row.spec.plan_id}`, short(row.spec.plan_id)) : "–") },
  { head: "Report", cell: (row) => time(row.status?.observed_at) },
];

function freezeBanner(freeze, redraw) {
  const put = async (body) => {
    await call("PUT", "v1/freeze", { body, headers: { "If-Match": freeze.etag } });
    await redraw();
  };
  if (freeze.frozen)
    return h(
      "div",
      { class: "banner cold" },
      badge("frozen"),
      h("span", {}, h("strong", {}, "Nothing writes to any target."), freeze.reason ? ` Reason: ${freeze.reason}` : ""),
      action("Unfreeze", () => put({ frozen: false }), {
        scope: "operate",
        confirm: { title: "Unfreeze the fleet?", text: "The controller and the remediation may write to targets again.", yes: "Unfreeze" },
      }),
    );
  return h(
    "div",
    { class: "banner" },
    badge("not frozen", { tone: "good" }),
    h("span", { class: "muted" }, "The controller may write to targets in mode apply."),
    action(
      "Freeze …",
      async () => {
        const reason = input({ maxlength: "500" });
        const agreed = await openDialog({ title: "Freeze the fleet?", text: "Every write to every target stops until you unfreeze.", yes: "Freeze", danger: true, fields: field("Reason", reason) });
        if (agreed) await put({ frozen: true, reason: reason.value.trim() || null });
      },
      { scope: "operate", kind: "danger" },
    ),
  );
}

export async function target(context) {
  const { name } = context.params;
  context.title = name;
  const load = async (signal) => readTarget(await read(`v1/targets/${name}`, signal), signal);
  const content = await live(context, load, (found) => drawTarget(found, () => content.redraw()), { everyMs: 3000 });
  return [
    h("div", { class: "head" }, h("p", { class: "crumbs" }, link("#/fleet", "Fleet"), " / ", name), h("h1", {}, name)),
    content,
  ];
}

function drawTarget(found, redraw) {
  const { spec, status, plan, name } = found;
  const { running, goal, now, then } = summary(found);
  const parts = partsOf(spec.application);
  const rows = Object.keys({ ...parts, ...running }).map((part) => ({ part, unit: parts[part] ?? "–", now: running[part] ?? null, goal: goal[part] ?? 0 }));
  return [
    tiles(
      tile("State", status ? badge(status.phase) : "no report", status ? time(status.observed_at) : null),
      tile("Replicas", `${num(sum(running))} / ${num(sum(goal))}`, "running / planned"),
      tile("Cost", usd(now.usd), `per hour; planned ${usd(then.usd)}`),
      tile("Power", watts(now.w), `at full load; planned ${watts(then.w)}`),
    ),
    status?.message ? h("div", { class: `banner ${status.phase === "failed" ? "bad" : "warn"}` }, h("span", {}, status.message)) : null,
    changeSet(found, redraw),
    h(
      "div",
      { class: "columns" },
      card(
        "Replicas",
        table(
          "Replicas of each part",
          [
            { head: "Part", cell: (row) => row.part },
            { head: "Unit", cell: (row) => row.unit },
            { head: "Running", number: true, cell: (row) => num(row.now) },
            { head: "Planned", number: true, cell: (row) => num(row.goal) },
            { head: "Drift", number: true, cell: (row) => signed(row.goal - (row.now ?? 0)) },
          ],
          rows,
        ),
      ),
      card(
        "Specification",
        facts([
          ["Workload", spec.workload],
          ["Application", `${words(spec.application.kind)}: ${spec.application.application ?? spec.application.cluster ?? spec.application.run}`],
          ["Mode", spec.mode],
          ["Plan", spec.plan_id ? link(`#/plans/${spec.plan_id}`, spec.plan_id) : "none: the controller only observes"],
          ["Verified plan", status?.state?.verified_plan_id ? link(`#/plans/${status.state.verified_plan_id}`, status.state.verified_plan_id) : "none yet"],
          ["Approval", spec.require_approval ? "required before each change set" : "not required"],
          ["Minimum", plural(spec.min_replicas, "replica")],
          ["Step", `${num(spec.max_step)} replicas per reconcile`],
          ["Version", num(found.version)],
        ]),
        h("div", { class: "buttons" }, spec.plan_id && plan ? h("a", { class: "button", href: `#/plans/compare?a=${spec.plan_id}&target=${name}` }, "Compare plan and now") : null),
      ),
      Object.keys(status?.expert_maps ?? {}).length ? card("Expert maps", maps(status.expert_maps)) : null,
    ),
  ];
}

// The ready change set, with its digest and the approval of exactly it.
export function changeSet({ name, spec, status }, redraw) {
  if (!status || (!status.changes.length && !status.settings.length)) return null;
  const id = newId("digest");
  const waits = status.phase === "awaiting_approval";
  const approve = async () => {
    await call("POST", `v1/targets/${name}/approval`, { body: { plan_id: spec.plan_id, digest: status.digest } });
    await redraw();
  };
  return card(
    waits ? "Change set that waits for approval" : "Change set",
    status.changes.length
      ? table(
          "Changes of replicas",
          [
            { head: "Deployment", cell: (row) => row.deployment },
            { head: "Part", cell: (row) => row.gpu },
            { head: "Replicas now", number: true, cell: (row) => num(row.replicas_now) },
            { head: "Planned", number: true, cell: (row) => num(row.replicas_planned) },
            { head: "Change", number: true, cell: (row) => signed(row.replicas_planned - row.replicas_now) },
          ],
          status.changes,
        )
      : null,
    status.settings.length
      ? table(
          "Changes of settings",
          [
            { head: "Deployment", cell: (row) => row.deployment },
            { head: "Setting", cell: (row) => row.key },
            { head: "Now", wide: true, cell: (row) => row.now ?? "–" },
            { head: "Planned", wide: true, cell: (row) => row.planned },
          ],
          status.settings,
        )
      : null,
    status.digest ? facts([["Digest", h("code", { id }, status.digest)]]) : null,
    status.approval && status.approval.digest === status.digest
      ? h("p", { class: "muted" }, "Approved ", time(status.approval.approved_at), ` by ${status.approval.approved_by}.`)
      : null,
    waits && status.digest && status.approval?.digest !== status.digest
      ? h(
          "div",
          { class: "buttons" },
          action("Approve this change set", approve, {
            scope: "approve",
            kind: "primary",
            confirm: { title: `Approve the change set of ${name}?`, text: `The approval covers one execution of exactly the change set ${status.digest.slice(0, 12)}…`, yes: "Approve" },
          }),
        )
      : null,
  );
}

function maps(found) {
  return table(
    "Expert maps",
    [
      { head: "Part", cell: ([part]) => part },
      { head: "Placement", cell: ([, map]) => link(`#/placements/${map.placement_id}`, short(map.placement_id)) },
      { head: "State", cell: ([, map]) => badge(map.phase) },
      { head: "Loaded", number: true, cell: ([, map]) => `${map.loaded} / ${map.replicas}` },
      { head: "Refused", number: true, cell: ([, map]) => num(map.refused) },
    ],
    Object.entries(found),
  );
}

