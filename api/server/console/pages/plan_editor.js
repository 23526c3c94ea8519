// New plan: a form and the request as YAML or JSON side by side. An edit of one changes the other, and the API validates
// the request while the user types.

import { call, can, list, Problem, query, read, result, session, solve } from "../lib/api.js";
import { announce, h, newId, put } from "../lib/dom.js";
import { num, plural } from "../lib/format.js";
import { partOf, partsOf } from "../lib/parts.js";
import { PRESETS } from "../lib/presets.js";
import { shortened } from "../lib/schema.js";
import { action, check, field, input, needs, problemBox, progress, select, tabs } from "../lib/ui.js";
import { dotted, parse, stringify, YamlError } from "../lib/yaml.js";

const DRAFT = "fleetwright-plan-draft";
const VALIDATE_AFTER_MS = 350;
const FORM_TEXT_MAX = 400_000; // characters; a longer text holds a trace, and is edited elsewhere
const START = {
  workloads: [
    {
      name: "chat",
      model: "Llama-3.1-8B",
      rate_rps: 20,
      buckets: { preset: "azure-conversation" },
      slo: { ttft_ms: { p99: 2000 }, tpot_ms: { p99: 60 } },
    },
  ],
  policy: { goal: "cost", survive: ["node"] },
  replay: { hours: 0.5 },
};
const GOALS = ["cost", "cost-and-switching", "energy", "carbon", "served"];
const MARKETS = ["on-demand", "reserved", "owned", "spot"];
const DEFAULT_MARKETS = ["on-demand", "reserved", "owned"];

export async function page(context) {
  context.title = "New plan";
  const from = context.query.get("from");
  const [models, targets] = await Promise.all([
    read("v1/models", context.signal).then((found) => found.models.map((each) => each.name)),
    list("v1/targets", { signal: context.signal }),
  ]);
  const start = from ? await shortened((await result(`v1/plans/${from}`, context.signal)).request, "PlanRequest") : (draft() ?? START);
  return new Editor({ context, start, models, targets }).element;
}

function draft() {
  try {
    return JSON.parse(sessionStorage.getItem(DRAFT));
  } catch {
    return null;
  }
}

class Editor {
  constructor({ context, start, models, targets }) {
    Object.assign(this, { context, models, targets, request: structuredClone(start), format: "yaml", lines: new Map() });
    const id = newId("text");
    this.area = h("textarea", { class: "code", id, spellcheck: "false", autocomplete: "off", wrap: "off", "aria-describedby": `${id}-note`, oninput: () => this.readText() });
    this.form = h("form", { "aria-label": "Plan request", onsubmit: (event) => event.preventDefault() });
    this.state = h("div", { role: "status", "aria-live": "polite" });
    this.running = h("div", {});
    this.name = input({ maxlength: "200" });
    this.solveAction = action("Plan", () => this.solve(), { scope: "plan", kind: "primary" });
    this.element = [
      h("div", { class: "head" }, h("h1", {}, "New plan"), h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => this.replace(START) }, "Start over"), this.solveAction)),
      this.running,
      h(
        "div",
        { class: "split" },
        h("div", { class: "rows" }, h("section", { class: "card", "aria-label": "Form" }, field("Name of the plan", this.name, { hint: "For the list of plans; may be empty." }), this.form)),
        h(
          "section",
          { class: "card", "aria-label": "Request as text" },
          h(
            "div",
            { class: "head" },
            h("label", { for: id }, h("strong", {}, "Request")),
            h("div", { class: "buttons" }, tabs("Format of the text", [["yaml", "YAML"], ["json", "JSON"]], "yaml", (format) => this.setFormat(format))),
          ),
          this.area,
          h("p", { class: "note muted", id: `${id}-note` }, "The page reads block and flow YAML without anchors, tags and block scalars, and all JSON. An edit in the form writes the text again, without comments."),
          this.state,
        ),
      ),
    ];
    this.writeText();
    this.drawForm();
    this.validateSoon(0);
  }

  replace(request) {
    this.request = structuredClone(request);
    this.changed();
    this.drawForm();
  }

  // After an edit in the form.
  changed() {
    this.writeText();
    this.validateSoon();
  }

  writeText() {
    this.area.value = this.format === "yaml" ? stringify(this.request) : `${JSON.stringify(this.request, null, 2)}\n`;
    this.keep();
    this.lines = this.linesOf(this.area.value);
  }

  setFormat(format) {
    this.format = format;
    this.writeText();
    this.showErrors(this.errors ?? []);
  }

  linesOf(text) {
    if (text.length > FORM_TEXT_MAX) return new Map();
    try {
      return parse(text).lines;
    } catch {
      return new Map();
    }
  }

  readText() {
    try {
      const text = this.area.value;
      const { value, lines } = text.length > FORM_TEXT_MAX && this.format === "json" ? { value: JSON.parse(text), lines: new Map() } : parse(text);
      if (value === null || typeof value !== "object" || Array.isArray(value)) throw new YamlError(1, "the request is a mapping with `workloads`");
      this.request = value;
      this.lines = lines;
      this.area.removeAttribute("aria-invalid");
    } catch (error) {
      this.area.setAttribute("aria-invalid", "true");
      this.checking?.abort();
      clearTimeout(this.timer);
      this.showErrors([{ path: "", message: error.message, line: error.line }], "The text cannot be read");
      return;
    }
    this.keep();
    this.drawForm();
    this.validateSoon();
  }

  keep() {
    try {
      sessionStorage.setItem(DRAFT, JSON.stringify(this.request));
    } catch {
      // The draft is too large for the storage: a reload starts again.
    }
  }

  // --- validation

  validateSoon(afterMs = VALIDATE_AFTER_MS) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.validate(), afterMs);
  }

  async validate() {
    if (!can("plan")) {
      put(this.state, h("p", { class: "note muted" }, "Validation and planning: ", needs("plan"), "."));
      return;
    }
    this.checking?.abort();
    this.checking = new AbortController();
    const { signal } = this.checking;
    try {
      await call("POST", "v1/plans/validate", { body: this.request, signal });
      this.showErrors([]);
    } catch (error) {
      if (signal.aborted || this.context.signal.aborted) return;
      if (error instanceof Problem && error.status === 422) this.showErrors(error.errors.length ? error.errors : [{ path: "", message: error.message }]);
      else if (error.status === 413) put(this.state, h("p", { class: "note muted" }, "The request is too large to validate while you type; Plan validates it."));
      else put(this.state, problemBox(error));
    }
  }

  showErrors(errors, title = null) {
    this.errors = errors;
    for (const control of this.form.querySelectorAll("[data-path]")) {
      const found = errors.filter((error) => error.path === control.dataset.path || control.dataset.also?.split(" ").includes(error.path));
      const note = document.getElementById(control.getAttribute("aria-describedby"));
      if (found.length) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
      if (!note) continue;
      note.dataset.hint ??= note.textContent;
      note.classList.toggle("wrong", found.length > 0);
      note.textContent = found.length ? found.map((error) => error.message).join("; ") : note.dataset.hint;
    }
    const text = errors.length ? (title ?? `${plural(errors.length, "field")} to correct`) : "The request is valid";
    put(
      this.state,
      h("p", { class: errors.length ? "wrong" : "muted" }, h("strong", {}, text)),
      errors.length ? h("ul", { class: "errors" }, errors.slice(0, 20).map((error) => this.errorItem(error))) : null,
    );
  }

  errorItem({ path, message, line = null }) {
    const where = line ?? this.lineOf(path);
    return h("li", {}, path ? [h("code", {}, path), " "] : null, message, where ? h("button", { type: "button", class: "small", onclick: () => this.goTo(where) }, `line ${where}`) : null);
  }

  lineOf(path) {
    for (let at = path; at; at = at.replace(/(\.[^.[]*|\[\d+\]|^[^.[]+)$/, "")) if (this.lines.has(at)) return this.lines.get(at);
    return null;
  }

  goTo(line) {
    const rows = this.area.value.split("\n");
    const start = rows.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    this.area.focus();
    this.area.setSelectionRange(start, start + (rows[line - 1]?.length ?? 0));
    this.area.scrollTop = Math.max(0, (line - 6) * 19);
  }

  // --- the form

  at(path) {
    return path.reduce((value, part) => (value === null || value === undefined ? undefined : value[part]), this.request);
  }

  set(path, value) {
    if (value === undefined) remove(this.request, path);
    else assign(this.request, path, value);
    this.changed();
  }

  text(label, path, options = {}) {
    const value = this.at(path);
    const given = value !== null && typeof value === "object";
    const control = input({
      value: given ? "given in the text" : (value ?? ""),
      disabled: given,
      inputmode: options.number ? "decimal" : null,
      list: options.list ?? null,
      placeholder: options.placeholder ?? null,
      oninput: () => this.set(path, typed(control.value, options.number)),
    });
    if (options.also) control.dataset.also = options.also;
    return field(label, control, { hint: options.hint, path: dotted(path) });
  }

  drawForm() {
    const models = h("datalist", { id: newId("models") }, this.models.map((name) => h("option", { value: name })));
    const presets = h("datalist", { id: newId("presets") }, PRESETS.map((name) => h("option", { value: name })));
    const workloads = Array.isArray(this.request.workloads) ? this.request.workloads : [];
    put(
      this.form,
      models,
      presets,
      workloads.map((workload, index) => this.workload(workload ?? {}, index, { models: models.id, presets: presets.id })),
      h("p", {}, h("button", { type: "button", onclick: () => this.addWorkload() }, "Add a workload")),
      h("br", {}),
      this.policy(),
      this.solving(),
      this.current(),
    );
  }

  workload(workload, index, lists) {
    const at = (...path) => ["workloads", index, ...path];
    const preset = workload.buckets && typeof workload.buckets === "object" && !("preset" in workload.buckets) && Object.keys(workload.buckets).length;
    return h(
      "fieldset",
      {},
      h("legend", {}, `Workload ${index + 1}`),
      h(
        "div",
        { class: "fields" },
        this.text("Name", at("name")),
        workload.options ? givenField("Model", `${plural(workload.options.length ?? 0, "option")} with known rates, in the text`) : this.text("Model", at("model"), { list: lists.models }),
        workload.demand ? givenField("Rate", "a series, in the text") : this.text("Rate, requests/s", at("rate_rps"), { number: true, also: dotted(at()) }),
        preset ? givenField("Request sizes", "a histogram or a trace, in the text") : this.text("Request sizes (preset)", at("buckets", "preset"), { list: lists.presets, also: dotted(at("buckets")) }),
        workload.options
          ? null
          : [
              this.text("First token, p99 ms", at("slo", "ttft_ms", "p99"), { number: true, also: dotted(at("slo")) }),
              this.text("Per token, p99 ms", at("slo", "tpot_ms", "p99"), { number: true }),
              this.text("Whole request, p99 ms", at("slo", "e2e_ms", "p99"), { number: true, placeholder: "no limit" }),
            ],
        this.text("Minimum replicas", at("min_replicas"), { number: true, placeholder: "0" }),
      ),
      workload.options
        ? null
        : h("p", {}, check("Also consider prefill and decode on separate replicas", { checked: workload.split === true, onchange: (on) => this.set(at("split"), on || undefined), path: dotted(at("split")) })),
      this.request.workloads.length > 1 ? h("button", { type: "button", class: "small", onclick: () => this.removeWorkload(index) }, `Remove workload ${index + 1}`) : null,
    );
  }

  addWorkload() {
    const last = this.request.workloads?.at(-1) ?? START.workloads[0];
    const names = new Set((this.request.workloads ?? []).map((each) => each?.name));
    let number = names.size + 1;
    while (names.has(`workload-${number}`)) number++;
    this.request.workloads = [...(this.request.workloads ?? []), { ...structuredClone(last), name: `workload-${number}` }];
    this.changed();
    this.drawForm();
    this.form.querySelectorAll("fieldset")[this.request.workloads.length - 1]?.querySelector("input")?.focus();
  }

  removeWorkload(index) {
    this.request.workloads.splice(index, 1);
    this.changed();
    this.drawForm();
    announce(`Workload ${index + 1} is removed`);
    this.form.querySelector("input")?.focus();
  }

  policy() {
    const goal = select(GOALS.map((name) => [name]), { value: this.at(["policy", "goal"]) ?? "cost", onchange: () => this.set(["policy", "goal"], goal.value) });
    const survive = this.at(["policy", "survive"]) ?? [];
    const markets = this.at(["markets"]) ?? DEFAULT_MARKETS;
    const domains = this.at(["power_domains"]) ?? [];
    const plainDomain = domains.length === 0 || (domains.length === 1 && !domains[0].members);
    const limit = input({
      inputmode: "decimal",
      placeholder: "no limit",
      value: domains[0]?.limit_w ?? "",
      oninput: () => this.set(["power_domains"], limit.value.trim() === "" ? undefined : [{ name: domains[0]?.name ?? "fleet", limit_w: typed(limit.value, true) }]),
    });
    return h(
      "fieldset",
      {},
      h("legend", {}, "Policy"),
      h(
        "div",
        { class: "fields" },
        field("Goal", goal, { path: "policy.goal" }),
        this.text("Budget, $/h", ["policy", "budget_usd_per_h"], { number: true, placeholder: "no limit" }),
        plainDomain ? field("Power limit, W", limit, { path: "power_domains[0].limit_w" }) : givenField("Power limit", `${plural(domains.length, "domain")}, in the text`),
      ),
      h("h3", {}, "The rest must carry the load after the loss of"),
      h("p", {}, ["node", "zone"].map((name) => check(`one ${name}`, { checked: survive.includes(name), onchange: (on) => this.toggle(["policy", "survive"], name, on, []) }))),
      h("h3", {}, "Markets"),
      h("p", {}, MARKETS.map((name) => check(name, { checked: markets.includes(name), onchange: (on) => this.toggle(["markets"], name, on, DEFAULT_MARKETS) }))),
    );
  }

  toggle(path, name, on, fallback) {
    const now = this.at(path) ?? fallback;
    this.set(path, on ? [...now, name] : now.filter((each) => each !== name));
  }

  solving() {
    return h(
      "fieldset",
      {},
      h("legend", {}, "Proof and time"),
      h(
        "div",
        { class: "fields" },
        this.text("Replay, hours", ["replay", "hours"], { number: true, placeholder: "no replay", hint: "Simulated traffic that must hold every limit." }),
        this.text("Time limit, s", ["time_limit_s"], { number: true, placeholder: "10" }),
        this.text("Accepted gap", ["relative_gap"], { number: true, placeholder: "0", hint: "Distance from the optimum, 0 to 0.5." }),
      ),
    );
  }

  current() {
    const running = this.request.current ?? [];
    const choice = select([["", "nothing"], ...this.targets.filter((each) => each.spec.plan_id).map((each) => [each.name])]);
    return h(
      "fieldset",
      {},
      h("legend", {}, "What runs now"),
      h(
        "div",
        { class: "fields" },
        field("Count the replicas of", choice, { hint: running.length ? `${num(running.reduce((total, each) => total + (each?.replicas ?? 0), 0))} replicas count as running` : "The plan then reports its moves." }),
        h("div", { class: "field" }, action("Use", () => this.useRunning(choice.value))),
      ),
    );
  }

  async useRunning(name) {
    if (!name) {
      this.set(["current"], undefined);
    } else {
      const { spec } = this.targets.find((each) => each.name === name);
      const [status, record] = await Promise.all([read(`v1/targets/${name}/status`), result(`v1/plans/${spec.plan_id}`)]);
      const keys = Object.keys(partsOf(spec.application));
      const entries = record.plan.allocation.filter((entry) => entry.workload === spec.workload);
      const current = Object.entries(status.applied)
        .map(([part, replicas]) => ({ workload: spec.workload, option: entries.find((entry) => partOf(entry, keys) === part)?.option, replicas }))
        .filter((entry) => entry.option);
      this.set(["current"], current.length ? current : undefined);
    }
    this.drawForm();
  }

  // --- solving

  async solve() {
    if (session.scopes.length && !can("plan")) return;
    const stop = new AbortController();
    this.context.signal.addEventListener("abort", () => stop.abort(new DOMException("left", "AbortError")));
    const shown = progress("Planning", { onCancel: () => stop.abort(new DOMException("cancelled", "AbortError")) });
    put(this.running, shown.element);
    try {
      const record = await solve(`v1/plans?${query({ name: this.name.value.trim() })}`, this.request, { signal: stop.signal, onProgress: (job) => shown.update(job) });
      location.hash = `#/plans/${record.id}`;
    } catch (error) {
      if (error.errors?.length) this.showErrors(error.errors);
      throw error;
    } finally {
      shown.end();
    }
  }
}

const givenField = (label, text) => h("div", { class: "field" }, h("span", { class: "muted" }, label), h("p", {}, text));

function typed(text, isNumber) {
  const value = text.trim();
  if (value === "") return undefined;
  return isNumber && !Number.isNaN(Number(value)) ? Number(value) : value;
}

function assign(root, path, value) {
  let at = root;
  path.slice(0, -1).forEach((part, index) => {
    if (at[part] === null || typeof at[part] !== "object") at[part] = typeof path[index + 1] === "number" ? [] : {};
    at = at[part];
  });
  at[path.at(-1)] = value;
}

// Removes a value, and the mappings that it leaves empty.
function remove(root, path) {
  const parents = [root];
  for (const part of path.slice(0, -1)) {
    const next = parents.at(-1)?.[part];
    if (next === null || typeof next !== "object") return;
    parents.push(next);
  }
  delete parents.at(-1)[path.at(-1)];
  for (let depth = parents.length - 1; depth > 0; depth--)
    if (!Array.isArray(parents[depth]) && !Object.keys(parents[depth]).length && !Array.isArray(parents[depth - 1])) delete parents[depth - 1][path[depth - 1]];
}
