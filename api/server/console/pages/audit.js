// Audit: every write, newest first, and a check that the chain is whole.

import { page as readPage, read } from "../lib/api.js";
import { announce, h, put } from "../lib/dom.js";
import { at, num } from "../lib/format.js";
import { action, card, paged, problemBox, table } from "../lib/ui.js";

export async function page(context) {
  context.title = "Audit";
  const found = h("div", { role: "status" });
  const check = async () => {
    const answer = await read("v1/audit/check");
    const text = answer.intact
      ? `The chain of ${num(answer.entries)} entries is intact.`
      : `The chain is broken at entry ${num(answer.first_broken_seq)} of ${num(answer.entries)}.`;
    put(found, h("div", { class: `banner ${answer.intact ? "" : "bad"}` }, h("strong", {}, text)));
    announce(text);
  };
  const head = h(
    "div",
    { class: "head" },
    h("h1", {}, "Audit"),
    h("div", { class: "buttons" }, action("Check the chain", check)),
    h("p", { class: "lead" }, "Every write with its actor. Each entry contains the hash of the one before, so that a change is found."),
  );
  let entries;
  try {
    entries = await paged((cursor) => readPage("v1/audit", { limit: 50, cursor, signal: context.signal }), (items) => table("Audit entries", COLUMNS, items), { none: "No entry yet." });
  } catch (error) {
    if (![401, 403].includes(error.status)) throw error;
    return [head, problemBox(error)];
  }
  return [head, found, card("Entries", entries)];
}

const COLUMNS = [
  { head: "No.", number: true, cell: (entry) => num(entry.seq) },
  { head: "Time", cell: (entry) => h("time", { datetime: entry.at }, at(entry.at)) },
  { head: "Actor", cell: (entry) => entry.actor },
  { head: "Action", cell: (entry) => h("code", {}, entry.action) },
  { head: "Subject", wide: true, cell: (entry) => subject(entry.subject) },
  { head: "Detail", wide: true, cell: (entry) => detail(entry) },
];

const PAGES = [
  [/^plans\/([0-9a-f-]{36})$/, "plans"],
  [/^placements\/([0-9a-f-]{36})$/, "placements"],
  [/^targets\/([a-z0-9-]+)$/, "targets"],
  [/^faults\/diagnoses\/([0-9a-f-]{36})$/, "health/diagnoses"],
  [/^power\/trees\/([a-z0-9-]+)$/, "power/trees"],
];

function subject(path) {
  for (const [pattern, section] of PAGES) {
    const match = pattern.exec(path);
    if (match) return h("a", { href: `#/${section}/${match[1]}` }, path);
  }
  return path;
}

function detail(entry) {
  const text = JSON.stringify(entry.detail, null, 2);
  return h(
    "details",
    {},
    h("summary", {}, `hash ${entry.hash.slice(0, 10)}…`),
    h("pre", { tabindex: "0" }, text === "{}" ? "" : `${text}\n`, `hash: ${entry.hash}`, entry.request_id ? `\nrequest: ${entry.request_id}` : ""),
  );
}
