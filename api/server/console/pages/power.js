// Power: trees with their load, budgets and caps, budgets of domains, and simulations with their brakes.

import { call, list, page as readPage, result, solve } from "../lib/api.js";
import { lines, tree as drawTree } from "../lib/charts.js";
import { announce, h, put } from "../lib/dom.js";
import { at, duration, num, percent, plural, short, watts } from "../lib/format.js";
import { expanded } from "../lib/hostlist.js";
import { action, openDialog, badge, card, empty, facts, field, input, link, paged, progress, select, table, tile, tiles, time } from "../lib/ui.js";

export async function overview(context) {
  context.title = "Power";
  const { signal } = context;
  const [trees, budgets] = await Promise.all([list("v1/power/trees", { signal }), list("v1/power/budgets", { signal })]);
  const plans = await paged(
    (cursor) => readPage("v1/power/plans", { limit: 20, cursor, signal }),
    (items) => table("Power plans, newest first", PLAN_COLUMNS, items),
    { none: "No power plan yet. Open a tree to plan its caps." },
  );
  const simulations = await paged(
    (cursor) => readPage("v1/power/simulations", { limit: 20, cursor, signal }),
    (items) => table("Simulations, newest first", SIMULATION_COLUMNS, items),
    { none: "No simulation yet. `fleetwright power simulate --url …` stores one." },
  );
  return [
    h("div", { class: "head" }, h("h1", {}, "Power"), h("p", { class: "lead" }, "Feeds with their limits, the load that plans expect, and the budgets that power guards enforce.")),
    h(
      "div",
      { class: "rows" },
      card("Power trees", table("Power trees", TREE_COLUMNS, trees, { none: "No power tree yet. `fleetwright power trees put` stores one." })),
      budgetCard(budgets, context),
      h("div", { class: "rows" }, card("Power plans", plans), card("Simulations", simulations)),
    ),
  ];
}

const TREE_COLUMNS = [
  { head: "Tree", cell: (row) => link(`#/power/trees/${row.name}`, row.name) },
  { head: "Feeds", number: true, cell: (row) => num(row.tree.feeds.reduce((total, feed) => total + expanded(feed.name).length, 0)) },
  { head: "Server groups", number: true, cell: (row) => num(row.tree.groups.length) },
  { head: "Servers", number: true, cell: (row) => num(servers(row.tree)) },
  { head: "Periods", number: true, cell: (row) => `${num(row.tree.periods)} × ${num(row.tree.period_h)} h` },
  { head: "Version", number: true, cell: (row) => num(row.version) },
];
const servers = (tree) => tree.groups.reduce((total, group) => total + group.count * expanded(group.power_domain).length, 0);

const PLAN_COLUMNS = [
  { head: "Power plan", cell: (row) => link(`#/power/trees/${row.tree}?plan=${row.id}`, h("code", {}, short(row.id))) },
  { head: "Created", cell: (row) => time(row.created_at) },
  { head: "Tree", cell: (row) => row.tree },
  { head: "Result", cell: (row) => badge(row.status) },
  { head: "Loss", number: true, cell: (row) => num(row.loss, 3) },
  { head: "Risk", number: true, cell: (row) => percent(row.risk, 2) },
  { head: "Binding feed", cell: (row) => row.binding ?? "none" },
];
const SIMULATION_COLUMNS = [
  { head: "Simulation", cell: (row) => link(`#/power/simulations/${row.id}`, h("code", {}, short(row.id))) },
  { head: "Created", cell: (row) => time(row.created_at) },
  { head: "Servers", number: true, cell: (row) => num(row.servers) },
  { head: "Policy", cell: (row) => row.policy },
  { head: "Days", number: true, cell: (row) => num(row.days) },
  { head: "Budget", number: true, cell: (row) => watts(row.budget_w) },
  { head: "Peak", number: true, cell: (row) => percent(row.peak_utilization, 1) },
  { head: "Brakes", number: true, cell: (row) => (row.brakes ? h("strong", { class: "wrong" }, num(row.brakes)) : "0") },
  { head: "SLO", cell: (row) => badge(row.slo_held ? "holds" : "broken", { tone: row.slo_held ? "good" : "bad" }) },
];

const isInForce = (budget) => new Date(budget.budget.expires_at) > new Date();

function budgetCard(budgets, context, domains = null) {
  const shown = domains ? budgets.filter((budget) => domains.includes(budget.domain)) : budgets;
  const columns = [
    { head: "Domain", cell: (row) => row.domain },
    { head: "Limit", number: true, cell: (row) => watts(row.budget.limit_w) },
    { head: "State", cell: (row) => badge(isInForce(row) ? "in force" : "expired", { tone: isInForce(row) ? "good" : "plain" }) },
    { head: "Expires", cell: (row) => time(row.budget.expires_at) },
    { head: "Set", cell: (row) => [time(row.set_at), ` by ${row.set_by}`] },
    {
      head: h("span", { class: "hidden" }, "Actions"),
      cell: (row) =>
        action("Withdraw", async () => {
          const { etag } = await call("GET", `v1/power/budgets/${row.domain}`);
          await call("DELETE", `v1/power/budgets/${row.domain}`, { headers: { "If-Match": etag } });
          announce(`The budget of ${row.domain} is withdrawn`);
          context.rerender();
        }, { scope: "operate", kind: "small", describe: `Withdraw the budget of ${row.domain}`, confirm: { title: `Withdraw the budget of ${row.domain}?`, text: "The power guard falls back to its standing budget.", yes: "Withdraw", danger: true } }),
    },
  ];
  return card(
    "Budgets of domains",
    h("p", {}, action("Set a budget …", () => setBudget(context, budgets, domains), { scope: "operate" })),
    table("Budgets", columns, shown, { none: "No budget is set; power guards use their standing budgets." }),
  );
}

async function setBudget(context, budgets, domains) {
  const domain = domains ? select(domains.map((name) => [name])) : input({ required: true });
  const limit = input({ inputmode: "decimal", required: true });
  const hours = input({ inputmode: "decimal", value: "8", required: true });
  const agreed = await openDialog({
    title: "Set a budget",
    yes: "Set the budget",
    fields: [field("Domain", domain), field("Limit, W", limit), field("For, hours", hours, { hint: "at most 7 days" })],
  });
  if (!agreed) return;
  const path = `v1/power/budgets/${encodeURIComponent(domain.value)}`;
  const now = budgets.some((budget) => budget.domain === domain.value) ? await call("GET", path) : null;
  await call("PUT", path, {
    body: { limit_w: Number(limit.value), expires_at: new Date(Date.now() + Number(hours.value) * 3.6e6).toISOString() },
    headers: now ? { "If-Match": now.etag } : { "If-None-Match": "*" },
  });
  announce(`The budget of ${domain.value} is set`);
  context.rerender();
}

// One tree, with the load of a power plan for it.
export async function tree(context) {
  const { name } = context.params;
  const { query, signal } = context;
  context.title = `Power tree ${name}`;
  const [stored, summaries, budgets] = await Promise.all([
    list("v1/power/trees", { signal }).then((trees) => trees.find((each) => each.name === name) ?? null),
    list("v1/power/plans", { limit: 200, signal }),
    list("v1/power/budgets", { signal }),
  ]);
  const own = summaries.filter((each) => each.tree === name);
  const id = query.get("plan") ?? own[0]?.id ?? null;
  const record = id ? await result(`v1/power/plans/${id}`, signal) : null;
  const spec = record?.request.tree ?? stored?.tree;
  if (!spec) return [h("div", { class: "head" }, h("h1", {}, name)), empty("There is no power tree of this name.")];
  const periods = record ? record.plan.periods.length : 1;
  const period = Math.min(Math.max(0, Number(query.get("period") ?? hottest(record)) || 0), periods - 1);
  const go = (changes) => {
    const next = new URLSearchParams(Object.entries({ plan: id, period, ...changes }).filter(([, value]) => value !== null && value !== undefined).map(([key, value]) => [key, String(value)]));
    location.hash = `#/power/trees/${name}?${next}`;
  };
  const choosePlan = select([["", "newest"], ...own.map((each) => [each.id, `${at(each.created_at)} · loss ${num(each.loss, 3)} · risk ${percent(each.risk, 2)}`])], { value: id ?? "", onchange: () => go({ plan: choosePlan.value || null, period: null }) });
  const choosePeriod = select(Array.from({ length: periods }, (_, index) => [index, `${num(index * spec.period_h)} h to ${num((index + 1) * spec.period_h)} h`]), { value: period, onchange: () => go({ period: choosePeriod.value }) });
  const running = h("div", {});
  const caps = record?.plan.periods[period];
  const roots = nodes(spec, caps, budgets, period);
  const names = spec.feeds.flatMap((feed) => expanded(feed.name));
  return [
    h(
      "div",
      { class: "head" },
      h("p", { class: "crumbs" }, link("#/power", "Power"), " / ", name),
      h("h1", {}, name),
      caps ? badge(caps.status) : null,
      h("div", { class: "buttons" }, stored ? action("Plan caps …", () => planCaps(name, running, context), { scope: "plan", kind: "primary" }) : null),
    ),
    running,
    record
      ? tiles(
          tile("Loss", num(caps.loss, 3), "servers with their slack used up"),
          tile("Binding feeds", num(caps.binding.length), caps.binding.slice(0, 3).join(", ") || "no watt is missing"),
          tile("Risk", percent(record.plan.risk, 2), "that a feed draws more at a moment"),
          tile("Servers", num(servers(spec)), plural(spec.groups.length, "group")),
        )
      : null,
    h(
      "div",
      { class: "rows" },
      card(
        "Load of each feed",
        h("div", { class: "fields" }, record ? field("Power plan", choosePlan) : null, record && periods > 1 ? field("Period", choosePeriod) : null),
        h("p", { class: "muted" }, "Bar: peak with caps. Pale: peak without. Line: limit. Dashes: budget."),
        drawTree(`Feeds of ${name}`, roots, { format: watts }),
      ),
      record ? conflicts(record.plan) : null,
      caps ? card("Caps", table("Clocks of each class of servers", CAP_COLUMNS, caps.classes)) : card("Caps", empty("No power plan for this tree yet.")),
      budgetCard(budgets, context, names),
    ),
  ];
}

function hottest(record) {
  if (!record) return 0;
  const losses = record.plan.periods.map((period) => period.loss ?? Infinity);
  return losses.indexOf(Math.max(...losses));
}

const clock = (value) => (value === null ? "–" : percent(value));
const CAP_COLUMNS = [
  { head: "Group", cell: (row) => row.group },
  { head: "Feed", cell: (row) => row.feed },
  { head: "Servers", number: true, cell: (row) => num(row.servers) },
  { head: "Token clock", number: true, cell: (row) => clock(row.token_clock) },
  { head: "Prompt clock", number: true, cell: (row) => clock(row.prompt_clock) },
  { head: "Slowdown", number: true, cell: (row) => percent(row.slowdown - 1, 1) },
  { head: "Slack", number: true, cell: (row) => percent(row.slack, 0) },
  { head: "Loss", number: true, cell: (row) => num(row.loss, 3) },
  { head: "One side lost: clock", number: true, cell: (row) => clock(row.lost_token_clock) },
];

function conflicts(plan) {
  return plan.conflicts.length
    ? card(
        "Feeds that exceed their limit with every choice of clocks",
        table(
          "Conflicts",
          [
            { head: "Feed", cell: (row) => row.feed },
            { head: "Period", number: true, cell: (row) => num(row.period) },
            { head: "Missing", number: true, cell: (row) => watts(row.missing_w) },
            { head: "Reason", wide: true, cell: (row) => row.reason },
          ],
          plan.conflicts,
        ),
      )
    : null;
}

function nodes(spec, caps, budgets, period) {
  const found = new Map();
  const own = new Map(budgets.filter(isInForce).map((budget) => [budget.domain, budget.budget.limit_w]));
  const planned = new Map((caps?.feeds ?? []).map((feed) => [feed.name, feed]));
  for (const feed of spec.feeds)
    for (const name of expanded(feed.name)) {
      const cap = planned.get(name);
      const series = feed.budget_w;
      const standing = series ? (series[series.length > 1 ? period : 0] ?? null) : null;
      const budget = [own.get(name), standing].filter((value) => value !== null && value !== undefined).sort((a, b) => a - b)[0] ?? null;
      const limit = cap?.limit_w ?? feed.limit_w ?? null;
      const used = cap?.peak_w ?? null;
      const most = Math.min(limit ?? Infinity, budget ?? Infinity);
      const tone = used === null ? "plain" : used > most * 1.0001 ? "bad" : used > most * 0.95 ? "warn" : "good";
      const detail = [
        `${name}, ${feed.kind}`,
        used === null ? null : `peak ${watts(used)} with caps, ${watts(cap.uncapped_peak_w)} without`,
        limit === null ? null : `limit ${watts(limit)}`,
        budget === null ? null : `budget ${watts(budget)}`,
        cap?.loss_per_kw ? `one more kW saves a loss of ${num(cap.loss_per_kw, 4)}` : null,
      ].filter(Boolean);
      found.set(name, { name, kind: [feed.kind, feed.redundancy === "2N" ? "2N" : null].filter(Boolean).join(", "), detail: detail.join("; "), used, uncapped: cap?.uncapped_peak_w ?? null, limit, budget, tone, children: [], parent: feed.parent });
    }
  const roots = [];
  for (const node of found.values()) (found.get(node.parent)?.children ?? roots).push(node);
  return roots;
}

async function planCaps(name, running, context) {
  const risk = input({ inputmode: "decimal", value: "0.001" });
  const agreed = await openDialog({ title: `Plan caps for ${name}`, text: "The least loss of service at which every feed stays within its limit.", yes: "Plan", fields: field("Accepted risk", risk, { hint: "chance that a feed draws more than its limit at a moment" }) });
  if (!agreed) return;
  const stop = new AbortController();
  context.signal.addEventListener("abort", () => stop.abort(new DOMException("left", "AbortError")));
  const shown = progress("Planning caps", { onCancel: () => stop.abort(new DOMException("cancelled", "AbortError")) });
  put(running, shown.element);
  try {
    const record = await solve("v1/power/plans", { tree_name: name, terms: { risk: Number(risk.value) } }, { signal: stop.signal, onProgress: (job) => shown.update(job) });
    location.hash = `#/power/trees/${name}?plan=${record.id}`;
  } finally {
    shown.end();
  }
}

export async function simulation(context) {
  const { id } = context.params;
  context.title = `Simulation ${short(id)}`;
  const { simulation: row, created_at } = await result(`v1/power/simulations/${id}`, context.signal);
  const hours = row.profile.step_s / 3600;
  const isBrake = (event) => /brake/i.test(event.what);
  return [
    h("div", { class: "head" }, h("p", { class: "crumbs" }, link("#/power", "Power"), " / simulation"), h("h1", {}, `${num(row.servers)} servers under policy ${row.policy}`), badge(row.slo_held ? "SLO holds" : "SLO broken", { tone: row.slo_held ? "good" : "bad" }), h("p", { class: "lead" }, "Simulated ", time(created_at))),
    tiles(
      tile("Brakes", num(row.brakes), "emergency cuts of the whole row"),
      tile("Peak", percent(row.peak_utilization, 1), `of the budget ${watts(row.budget_w)}`),
      tile("Over budget", duration(row.seconds_over_budget), `in ${plural(row.days, "day")}`),
      tile("Energy", `${num(row.energy_kwh, 0)} kWh`, `${num(row.requests)} requests`),
      tile("p99, high priority", row.slo.high.p99 === null ? "–" : `+${percent(row.slo.high.p99, 1)}`, `low: ${row.slo.low.p99 === null ? "–" : `+${percent(row.slo.low.p99, 1)}`}`),
    ),
    h(
      "div",
      { class: "rows" },
      h("div", { class: "columns" }, card(
        "Power of the row",
        lines("Mean and highest power of the row against its budget", {
          step: hours,
          lines: [
            { values: row.profile.max_w, class: "max" },
            { values: row.profile.mean_w, class: "mean" },
          ],
          levels: [{ label: `budget ${watts(row.budget_w)}`, value: row.budget_w }],
          marks: row.events.filter(isBrake).map((event) => ({ at: event.at_s / 3600, label: event.what })),
          xText: "Hours (blue: mean, orange: highest of each step, red: brakes)",
          yText: "Power",
          yFormat: watts,
        }),
      ),
      card("Assumptions", facts(Object.entries(row.assumptions).map(([key, value]) => [key.replaceAll("_", " "), String(value)])))),
      card(
        "Events",
        table(
          "Events of the simulation",
          [
            { head: "After", cell: (event) => duration(event.at_s) },
            { head: "Event", wide: true, cell: (event) => event.what },
            { head: "Row", number: true, cell: (event) => watts(event.row_w) },
          ],
          row.events.slice(0, 300),
          { none: "Nothing happened: no brake, no fault." },
        ),
      ),
    ),
  ];
}
