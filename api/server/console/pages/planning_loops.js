// Planning loops on the page of the fleet: what each observes and decides.

import { list } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { num } from "../lib/format.js";
import { badge, card, link, table, time } from "../lib/ui.js";

export async function readLoops(signal) {
  const [loops, statuses] = await Promise.all([list("v1/planning-loops", { signal }), list("v1/planning-loop-statuses", { signal })]);
  const reports = new Map(statuses.map((each) => [each.planning_loop, each.status]));
  return loops.map((loop) => ({ ...loop, status: reports.get(loop.name) ?? null }));
}

export const loopsCard = (loops) => (loops.length ? card("Planning loops", table("Planning loops", COLUMNS, loops)) : null);

const rates = (pick) => (row) => Object.values(row.status?.demand ?? {}).map((demand) => num(pick(demand))).join(", ") || "–";

const wanted = (row) =>
  Object.values(row.status?.wanted ?? {})
    .flatMap((parts) => Object.entries(parts).map(([part, replicas]) => `${num(replicas)} ${part}`))
    .join(", ") || "–";

const reasons = ({ problems = [], message } = {}) => [...problems, ...(message ? [message] : [])];

const COLUMNS = [
  { head: "Loop", cell: (row) => row.name },
  { head: "Targets", cell: (row) => Object.values(row.spec.targets).map((name, at) => [at ? ", " : "", link(`#/targets/${name}`, name)]) },
  { head: "State", cell: (row) => (row.status ? badge(row.status.phase) : badge("no report", { tone: "plain" })) },
  { head: "Mode", cell: (row) => row.spec.mode },
  { head: "Arrivals/s", number: true, cell: rates((demand) => demand.arrivals_rps) },
  { head: "Planned for/s", number: true, cell: rates((demand) => demand.forecast_rps) },
  { head: "Wanted", cell: wanted },
  { head: "Reasons", wide: true, cell: (row) => reasons(row.status ?? {}).map((reason) => h("div", {}, reason)) },
  { head: "Report", cell: (row) => time(row.status?.observed_at) },
];
