// Health: nodes and their quarantine, the budgets and the circuit breaker that limit it, diagnoses with their evidence,
// and remediation cases.

import { call, list, page as readPage, read } from "../lib/api.js";
import { announce, download, h, put } from "../lib/dom.js";
import { duration, num, percent, plural, short, words } from "../lib/format.js";
import { live } from "../lib/live.js";
import { action, openDialog, badge, card, empty, facts, field, input, link, meter, table, tile, tiles, time } from "../lib/ui.js";

const OUT = new Set(["quarantined", "probing", "cordoned"]);
const CHECKS = "v1/faults/quarantine";

export async function overview(context) {
  context.title = "Health";
  const load = async (signal) => {
    const [view, { rules }, diagnoses, cases] = await Promise.all([
      read(CHECKS, signal),
      read(`${CHECKS}/rules`, signal),
      readPage("v1/faults/diagnoses", { limit: 50, signal }),
      list("v1/faults/cases", { limit: 400, signal }),
    ]);
    return { view, rules, diagnoses: diagnoses.items, cases };
  };
  const content = await live(context, load, (data) => draw(data, () => content.redraw()));
  return [
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Health"),
      h("div", { class: "buttons" }, action("Cordon a node …", () => cordon(() => content.redraw()), { scope: "operate" })),
      h("p", { class: "lead" }, "Faults that monitors diagnose, the nodes that the quarantine policy takes out of service, and what the remediation does."),
    ),
    content,
  ];
}

async function cordon(redraw) {
  const node = input({ required: true });
  const agreed = await openDialog({ title: "Cordon a node", text: "The node takes no work until an operator releases it. The next evaluation applies this.", yes: "Cordon", danger: true, fields: field("Node", node, { hint: "a name of the last evaluation" }) });
  if (agreed) await request(node.value.trim(), "cordon", redraw);
}

async function request(node, kind, redraw) {
  await call("POST", `${CHECKS}/nodes/${encodeURIComponent(node)}/actions`, { body: { action: kind } });
  announce(`${kind} of ${node} is requested; the next evaluation applies it`);
  await redraw();
}

function draw({ view, rules, diagnoses, cases }, redraw) {
  const active = diagnoses.filter((each) => new Date(each.expires_at) > new Date());
  const open = cases.filter((each) => OUT.has(each.case.state));
  const out = view.nodes.filter((node) => OUT.has(node.state) && !node.dry_run);
  const proposed = view.nodes.filter((node) => node.state === "proposed");
  return [
    breakerBanner(view, redraw),
    view.frozen ? h("div", { class: "banner cold" }, badge("frozen"), "While the fleet is frozen, the policy decides nothing new.") : null,
    tiles(
      tile("Nodes", num(view.fleet), view.evaluated_at ? ["evaluated ", time(view.evaluated_at)] : "no evaluation yet"),
      tile("Out of service", num(out.length), `policy mode: ${view.mode}`),
      tile("Proposed", num(proposed.length), "wait for an operator"),
      tile("Active diagnoses", num(active.length), active.length ? words(active[0].fault) : "no fault"),
      tile("Open cases", num(open.length), "remediation"),
    ),
    card(
      "Nodes with a history",
      table("Nodes with a history", nodeColumns(redraw), view.nodes, { none: "No node was ever suspected: all serve." }),
    ),
    h("div", { class: "columns" }, guardrails(view, rules, out), decisions(view)),
    card("Diagnoses", table("The newest diagnoses", DIAGNOSIS_COLUMNS, diagnoses, { none: "No diagnosis yet." })),
    card("Remediation cases", table("Remediation cases", CASE_COLUMNS, [...cases].reverse(), { none: "No node was ever out of service." })),
  ];
}

function breakerBanner(view, redraw) {
  const { breaker } = view;
  if (!breaker.opened_at) return null;
  return h(
    "div",
    { class: "banner bad" },
    badge("open", { text: "breaker open" }),
    h("span", {}, h("strong", {}, "The circuit breaker refuses every new quarantine"), " since ", time(breaker.opened_at), `: ${plural(breaker.suspected.length, "node")} suspected together.`),
    breaker.reset_requested
      ? h("span", {}, "A reset is requested.")
      : action("Reset the breaker", async () => (await call("POST", `${CHECKS}/breaker/reset`), await redraw()), {
          scope: "operate",
          confirm: { title: "Reset the circuit breaker?", text: "The next evaluation allows quarantines again, and opens the breaker again if as many nodes are suspected.", yes: "Reset" },
        }),
  );
}

const ACTIONS = {
  proposed: ["approve", "decline", "cordon"],
  quarantined: ["release", "cordon"],
  probing: ["release", "cordon"],
  cordoned: ["release"],
  serving: ["cordon"],
  suspect: ["cordon"],
  probation: ["cordon"],
};
const QUESTIONS = {
  approve: "The node leaves service at the next evaluation, if the guardrails allow it.",
  decline: "The node stays in service; this diagnosis no longer proposes it.",
  release: "The node takes work again from the next evaluation on.",
  cordon: "The node takes no work until an operator releases it.",
};

const nodeColumns = (redraw) => [
  { head: "Node", cell: (node) => node.node },
  { head: "State", cell: (node) => [badge(node.state), node.dry_run ? h("small", {}, " simulated") : null] },
  { head: "Since", cell: (node) => (new Date(node.since).getTime() > 0 ? time(node.since) : "–") },
  { head: "Diagnosis", cell: (node) => (node.diagnosis_id ? link(`#/health/diagnoses/${node.diagnosis_id}`, short(node.diagnosis_id)) : "–") },
  { head: "Refused by", cell: (node) => words(node.refused_by) },
  { head: "Strikes", number: true, cell: (node) => num(node.strikes.length) },
  { head: "Probes", number: true, cell: (node) => `${node.probes_passed} passed, ${node.probes_failed} failed` },
  {
    head: h("span", { class: "hidden" }, "Actions"),
    cell: (node) =>
      node.pending_action
        ? badge("queued", { text: `${node.pending_action} requested` })
        : h(
            "span",
            { class: "buttons" },
            (ACTIONS[node.state] ?? []).map((kind) =>
              action(words(kind)[0].toUpperCase() + kind.slice(1), () => request(node.node, kind, redraw), {
                scope: "operate",
                kind: `small${kind === "cordon" ? " danger" : ""}`,
                describe: `${kind} ${node.node}`,
                confirm: { title: `${words(kind)[0].toUpperCase() + kind.slice(1)} ${node.node}?`, text: QUESTIONS[kind], yes: words(kind)[0].toUpperCase() + kind.slice(1), danger: kind === "cordon" },
              }),
            ),
          ),
  },
];

function guardrails(view, rules, out) {
  const allowed = Math.max(0, Math.min(rules.pool.count, Math.floor(rules.pool.share * view.fleet)));
  return card(
    "Disruption budget and breaker",
    facts([
      ["Mode", [badge(rules.mode, { tone: rules.mode === "observe" ? "plain" : "good" })]],
      ["Nodes out of service", [meter(out.length, Math.max(allowed, 1), { label: "Nodes out of service" }), ` ${num(out.length)} of ${num(allowed)} if all were one pool`]],
      ["Per pool", `${percent(rules.pool.share)} and ${num(rules.pool.count)} at most`],
      ["Per failure domain", `${percent(rules.domain.share)} and ${num(rules.domain.count)} at most`],
      ["Rate", `${num(rules.rate_count)} in ${duration(rules.rate_window_s)}`],
      ["Breaker", [badge(view.breaker.opened_at ? "open" : "closed"), ` opens at ${percent(rules.breaker_share)} and ${num(rules.breaker_nodes)} nodes suspected within ${duration(rules.breaker_window_s)}`]],
      ["Confidence", `${percent(rules.min_confidence)} at least`],
      ["Probes", `${num(rules.probes)} passed to return; ${num(rules.failed_probes)} failed: cordoned`],
    ]),
  );
}

const decisions = (view) =>
  card(
    "Decisions",
    table(
      "The newest decisions of the policy",
      [
        { head: "Decision", cell: (row) => [words(row.kind), row.dry_run ? h("small", {}, " simulated") : null] },
        { head: "Node", cell: (row) => row.node ?? "–" },
        { head: "When", cell: (row) => time(row.at) },
        { head: "Reason", wide: true, cell: (row) => row.reason },
      ],
      view.decisions.slice(0, 15),
      { none: "No decision yet." },
    ),
  );

const DIAGNOSIS_COLUMNS = [
  { head: "Diagnosis", cell: (row) => link(`#/health/diagnoses/${row.id}`, h("code", {}, short(row.id))) },
  { head: "Fault", cell: (row) => badge(row.fault, { tone: "bad" }) },
  { head: "Place", cell: (row) => [row.scope, " ", row.switch ?? ([row.node, row.peer].filter(Boolean).join(" – ") || "")] },
  { head: "Job", cell: (row) => row.job },
  { head: "Confidence", number: true, cell: (row) => percent(row.confidence) },
  { head: "Reported", cell: (row) => time(row.created_at) },
  { head: "State", cell: (row) => (new Date(row.expires_at) > new Date() ? badge("active", { tone: "warn" }) : badge("expired", { tone: "plain" })) },
  { head: "Evidence", cell: (row) => (row.has_bundle ? "bundle" : "–") },
  { head: "Reason", wide: true, cell: (row) => row.reason },
];

const CASE_COLUMNS = [
  { head: "Case", cell: (row) => link(`#/health/cases/${encodeURIComponent(row.id)}`, short(row.id)) },
  { head: "Node", cell: (row) => row.case.node },
  { head: "State", cell: (row) => badge(row.case.state) },
  { head: "Stage", cell: (row) => badge(row.case.stage) },
  { head: "Opened", cell: (row) => time(row.case.opened_at) },
  { head: "Runs", number: true, cell: (row) => num(row.case.runs.length) },
  { head: "Message", wide: true, cell: (row) => row.case.message || "–" },
];

export async function diagnosis(context) {
  const { id } = context.params;
  const found = await read(`v1/faults/diagnoses/${id}`, context.signal);
  const { diagnosis: about } = found;
  context.title = `Diagnosis ${short(id)}`;
  const isActive = new Date(found.expires_at) > new Date();
  const replayed = h("div", { role: "status" });
  const replay = async () => put(replayed, replayResult((await call("POST", `v1/faults/diagnoses/${id}/replay`)).data));
  const bundle = async () => download(`bundle-${id}.ndjson`, (await call("GET", `v1/faults/diagnoses/${id}/bundle`, { text: true })).data, "application/x-ndjson");
  const withdraw = async () => {
    await call("PUT", `v1/faults/diagnoses/${id}/expiry`, { body: { expires_in_s: 0 } });
    announce("The diagnosis is withdrawn");
    context.rerender();
  };
  return [
    h(
      "div",
      { class: "head" },
      h("p", { class: "crumbs" }, link("#/health", "Health"), " / ", h("code", {}, id)),
      h("h1", {}, `${words(about.fault)} of ${about.scope} ${about.switch ?? [found.node, found.peer].filter(Boolean).join(" – ")}`),
      badge(isActive ? "active" : "expired", { tone: isActive ? "warn" : "plain" }),
      h("div", { class: "buttons" }, isActive ? action("Withdraw", withdraw, { scope: "operate", kind: "danger", confirm: { title: "Withdraw the diagnosis?", text: "The quarantine policy no longer uses it.", yes: "Withdraw", danger: true } }) : null),
    ),
    h(
      "div",
      { class: "columns" },
      card(
        "Diagnosis",
        facts([
          ["Reason", about.reason],
          ["Confidence", [meter(about.confidence, 1, { label: "Confidence" }), ` ${percent(about.confidence)}`]],
          ["Quarantine", about.isolate ? "the evidence justifies one" : "the evidence does not justify one"],
          ["Job", found.job],
          ["Direction", about.direction ?? "–"],
          ["Onset", `${num(about.onset_s, 1)} s after the start of the job's clock`],
          ["Detected", `${num(about.detected_s - about.onset_s, 1)} s after the onset`],
          ["Reported", [time(found.created_at), ` by ${found.created_by}`]],
          ["Expires", time(found.expires_at)],
          ["Failure domains", found.domains.join(", ") || "–"],
        ]),
      ),
      card(
        "Evidence",
        about.evidence.length ? h("ul", { class: "explanation" }, about.evidence.map((kind) => h("li", {}, words(kind)))) : empty("The monitor named no kinds of evidence."),
        found.bundle_sha256
          ? [
              h("p", {}, "The bundle holds the observations of the monitor. ", h("code", {}, found.bundle_sha256.slice(0, 16)), "…"),
              h("p", { class: "buttons" }, action("Download the bundle", bundle), action("Replay the bundle", replay, { scope: "plan" })),
              replayed,
            ]
          : h("p", { class: "muted" }, "Reported without a bundle, so it cannot be replayed."),
      ),
    ),
  ];
}

function replayResult(found) {
  return [
    h(
      "div",
      { class: `banner ${found.same ? "" : "warn"}` },
      badge(found.same ? "verified" : "refused", { text: found.same ? "same result" : "different result" }),
      h("span", {}, found.same ? "This version gives the same diagnoses, bit for bit." : "This version gives other diagnoses for the same observations."),
      h("span", { class: "muted" }, `written by ${found.written_by}, replayed by ${found.replayed_by} in ${duration(found.run_s)}`),
    ),
    h("ul", { class: "explanation" }, found.replayed.map((each) => h("li", {}, `${words(each.fault)}, ${each.scope} ${each.node ?? each.switch ?? ""}, confidence ${percent(each.confidence)}: ${each.reason}`))),
  ];
}

export async function remediationCase(context) {
  const { id } = context.params;
  const found = await read(`v1/faults/cases/${encodeURIComponent(id)}`, context.signal);
  const about = found.case;
  context.title = `Case ${short(id)}`;
  return [
    h("div", { class: "head" }, h("p", { class: "crumbs" }, link("#/health", "Health"), " / case ", h("code", {}, id)), h("h1", {}, about.node), badge(about.state), badge(about.stage)),
    h(
      "div",
      { class: "columns" },
      card(
        "Case",
        facts([
          ["Diagnosis", about.diagnosis_id ? link(`#/health/diagnoses/${about.diagnosis_id}`, about.diagnosis_id) : "an operator cordoned the node"],
          ["Opened", time(about.opened_at)],
          ["Since", time(about.since)],
          ["Deadline", about.deadline ? time(about.deadline) : "–"],
          ["Checkpoint", about.can_checkpoint ? "the ranks can still write one" : "not possible"],
          ["Message", about.message || "–"],
        ]),
      ),
      card(
        "Runs",
        table(
          "Training runs on the node",
          [
            { head: "Run", cell: (run) => run.run },
            { head: "Workers", number: true, cell: (run) => num(run.workers) },
            { head: "Checkpoint", number: true, cell: (run) => num(run.checkpoint_step) },
            { head: "Resumed at", number: true, cell: (run) => num(run.resumed_step) },
          ],
          about.runs,
          { none: "No training run had workers on the node." },
        ),
      ),
    ),
    h("br", {}),
    card(
      "Actions",
      table(
        "Actions",
        [
          { head: "When", cell: (each) => time(each.at) },
          { head: "Action", cell: (each) => words(each.action) },
          { head: "Detail", wide: true, cell: (each) => each.detail || "–" },
        ],
        about.actions,
      ),
    ),
  ];
}
