// Parts that several pages share: tables, badges, problems, dialogs, progress.

import { can, Problem, session } from "./api.js";
import { announce, h, newId, put, rich } from "./dom.js";
import { ago, at, duration, num, percent, words } from "./format.js";

export const link = (href, ...text) => h("a", { href }, ...text);

const TONES = {
  good: "applied optimal verified serving ok succeeded passed loaded released closed intact replaced true steady",
  warn: "awaiting_approval recommended settling proposed suspect probation time_limit draining waiting wanted evacuating holding",
  bad: "failed infeasible quarantined cordoned rolled_back refused open broken crash",
  busy: "applying rolling_back probing rolling running queued migrating restarting requested",
  cold: "frozen",
};
const toneOf = (state) => Object.keys(TONES).find((tone) => TONES[tone].split(" ").includes(String(state))) ?? "plain";

export const badge = (state, { tone = toneOf(state), text = words(state) } = {}) =>
  h("span", { class: `badge ${tone}` }, h("span", { class: "dot", "aria-hidden": "true" }), text);

export const time = (moment) =>
  moment ? h("time", { datetime: moment, title: at(moment), "data-ago": true }, ago(moment)) : h("span", { class: "muted" }, "never");

export const tile = (label, value, note) =>
  h("div", { class: "tile" }, h("dt", {}, label), h("dd", {}, value, note && h("small", {}, note)));

export const tiles = (...items) => h("dl", { class: "tiles" }, ...items);

export function card(title, ...content) {
  const id = newId("card");
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), ...content);
}

export const empty = (text, ...more) => h("div", { class: "empty" }, h("p", {}, rich(text)), ...more);

export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// Columns: {head, cell(row), number?, wide?}. The first column names the row.
export function table(caption, columns, rows, { none = "Nothing here yet.", rowClass = () => null } = {}) {
  if (!rows.length) return empty(none);
  const kind = (column) => (column.number ? "number" : column.wide ? "wide" : null);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.head)))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            { class: rowClass(row) },
            columns.map((column, index) =>
              h(index ? "td" : "th", { scope: index ? null : "row", class: kind(column) }, column.cell(row)),
            ),
          ),
        ),
      ),
    ),
  );
}

export function problemBox(error) {
  const box = h("div", { class: "problem", role: "alert" }, h("strong", {}, rich(sentence(error.message))));
  if (error instanceof Problem) {
    if (error.errors.length > 1 || (error.errors.length && !error.message.includes(error.errors[0].message)))
      box.append(h("ul", {}, error.errors.map((each) => h("li", {}, h("code", {}, each.path), " ", rich(each.message)))));
    if (error.status === 401) box.append(h("p", {}, link(signInHref(), "Sign in"), " with a token that may do this."));
    if (error.requestId) box.append(h("p", { class: "muted" }, "Request ", h("code", {}, error.requestId)));
  }
  return box;
}

const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");
export const signInHref = () => `#/sign-in?next=${encodeURIComponent(location.hash || "#/fleet")}`;

// A button that runs an action once at a time and shows what went wrong beside it.
export function action(label, run, { scope = null, kind = "", confirm = null, describe = null } = {}) {
  const allowed = !scope || can(scope);
  const result = h("div", { class: "action-result" });
  const button = h(
    "button",
    { type: "button", class: kind, disabled: !allowed, "aria-label": describe, onclick: click },
    label,
  );
  async function click() {
    if (confirm && !(await openDialog(confirm))) return;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    put(result);
    try {
      await run();
    } catch (error) {
      if (error.name !== "AbortError") {
        const box = problemBox(error);
        box.append(h("button", { type: "button", class: "small", onclick: () => (put(result), button.focus()) }, "Dismiss"));
        put(result, box);
      }
    } finally {
      button.disabled = !allowed;
      button.removeAttribute("aria-busy");
    }
  }
  const note = allowed ? null : h("small", { class: "muted" }, needs(scope));
  return h("span", { class: "action" }, button, note, result);
}

export const needs = (scope) =>
  session.actor === null || session.actor === "anonymous"
    ? [link(signInHref(), "Sign in"), ` (scope ${scope})`]
    : `needs scope ${scope}`;

// Opens a modal dialog; resolves to whether the user confirmed.
export function openDialog({ title, text, yes, danger = false, fields = null }) {
  const id = newId("dialog");
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-labelledby": id, onclose: () => (resolve(dialog.returnValue === "yes"), dialog.remove()) },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id }, title),
        text && h("p", {}, text),
        fields,
        h(
          "div",
          { class: "buttons" },
          h("button", { value: "no", type: "button", onclick: () => dialog.close("no") }, "Cancel"),
          h("button", { value: "yes", class: danger ? "danger" : "primary" }, yes),
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function field(label, control, { hint = null, path = null, wide = false } = {}) {
  const id = newId("field");
  const noteId = `${id}-note`;
  control.id = id;
  control.setAttribute("aria-describedby", noteId);
  if (path) control.dataset.path = path;
  const note = h("div", { class: "note", id: noteId }, rich(hint));
  return h("div", { class: wide ? "field wide" : "field" }, h("label", { for: id }, label), control, note);
}

export const input = (attributes) => h("input", { autocomplete: "off", spellcheck: "false", ...attributes });

export const select = (options, { value, ...attributes } = {}) =>
  h(
    "select",
    attributes,
    options.map(([name, text]) => h("option", { value: name, selected: String(name) === String(value) }, text ?? name)),
  );

export function check(label, { checked, onchange, path = null }) {
  const id = newId("check");
  const box = h("input", { type: "checkbox", id, checked: checked || null, onchange: () => onchange(box.checked) });
  if (path) box.dataset.path = path;
  return h("span", { class: "check" }, box, h("label", { for: id }, label));
}

// Progress of a solve, with its phase, the place in the queue, the time so far and a way to cancel.
export function progress(title, { onCancel }) {
  const started = performance.now();
  const bar = h("progress", { "aria-label": title, max: "1" });
  const state = h("span", { class: "progress-state" }, "Sent");
  const clock = h("span", { class: "muted number" }, "0 s");
  const timer = setInterval(() => (clock.textContent = duration((performance.now() - started) / 1000)), 250);
  let announced = "";
  const element = h(
    "div",
    { class: "progress card gap" },
    h("div", { class: "progress-head" }, h("strong", {}, title), state, clock),
    bar,
    h("button", { type: "button", onclick: onCancel }, "Cancel"),
  );
  return {
    element,
    update({ state: at, position, phase, share }) {
      const where = at === "queued" && position ? `queued, ${position} before it` : (phase ?? words(at));
      const text = share ? `${where}, ${percent(share)}` : where;
      state.textContent = text;
      if (share === null || share === undefined) bar.removeAttribute("value");
      else bar.value = share;
      if (where !== announced) announce(`${title}: ${(announced = where)}`);
    },
    end() {
      clearInterval(timer);
      element.remove();
    },
  };
}

export function tabs(label, items, chosen, onChoose) {
  return h(
    "div",
    { class: "segmented", role: "group", "aria-label": label },
    items.map(([value, text]) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(value === chosen),
          onclick(event) {
            for (const each of event.currentTarget.parentElement.children) each.setAttribute("aria-pressed", "false");
            event.currentTarget.setAttribute("aria-pressed", "true");
            onChoose(value);
          },
        },
        text,
      ),
    ),
  );
}

export const meter = (value, max, { tone = "accent", label }) => {
  const share = max > 0 ? Math.min(1, value / max) : 0;
  return h("meter", { class: tone, min: "0", max: "1", value: String(share), "aria-label": `${label}: ${num(value)} of ${num(max)}` });
};

// A list with a "more" button, because lists are pages with a cursor.
export async function paged(load, show, { none }) {
  const holder = h("div", { class: "paged" });
  const items = [];
  let cursor = null;
  async function more() {
    const found = await load(cursor);
    items.push(...found.items);
    cursor = found.next_cursor;
    put(
      holder,
      items.length ? show(items) : empty(none),
      cursor && h("p", { class: "more" }, action("Show more", more)),
    );
  }
  await more();
  return holder;
}
