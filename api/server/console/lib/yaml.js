// Reads and writes the part of YAML 1.2 that plan requests need, which contains all of JSON: block and flow mappings and
// sequences, plain and quoted scalars, comments. Anchors, tags, block scalars and several documents are refused.
//
// `parse` also returns the line of every value, so that a message of the API can be shown at its line.

export class YamlError extends Error {
  constructor(line, message) {
    super(`line ${line}: ${message}`);
    this.line = line;
  }
}

const MAX_DEPTH = 60;
const CORE = new Map([
  ["", null],
  ...["~", "null", "Null", "NULL"].map((text) => [text, null]),
  ...["true", "True", "TRUE"].map((text) => [text, true]),
  ...["false", "False", "FALSE"].map((text) => [text, false]),
]);
const RADIX = /^0(x[0-9a-fA-F]+|o[0-7]+)$/;
const NUMBER = /^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$/;
const KEY = /^(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'|([^\s\-?:,[\]{}#&*!|>'"%@`][^#]*?|-[^\s#][^#]*?))\s*:(?=\s|$)/;

export function parse(text) {
  const reader = new Reader(text);
  const value = reader.document();
  return { value, lines: reader.lines };
}

class Reader {
  constructor(text) {
    this.rows = text
      .replace(/^\ufeff/, "")
      .split(/\r?\n/)
      .map((raw, index) => ({ raw, line: index + 1, indent: raw.length - raw.trimStart().length, text: content(raw) }));
    this.at = 0;
    this.lines = new Map();
  }

  document() {
    this.skip();
    if (this.row?.text === "---") {
      this.at++;
      this.skip();
    }
    if (!this.row) return null;
    const value = this.node(this.row.indent, [], 0);
    this.skip();
    if (this.row) throw new YamlError(this.row.line, "is not part of the document; check the indentation");
    return value;
  }

  get row() {
    return this.rows[this.at];
  }

  skip() {
    while (this.row && this.row.text === "") this.at++;
    if (this.row && /^\s*\t/.test(this.row.raw)) throw new YamlError(this.row.line, "is indented with a tab; use spaces");
  }

  node(indent, path, depth) {
    const row = this.row;
    if (depth > MAX_DEPTH) throw new YamlError(row.line, "is nested too deep");
    this.mark(path, row.line);
    if (/^-(\s|$)/.test(row.text)) return this.sequence(indent, path, depth);
    if (!"[{".includes(row.text[0]) && KEY.test(row.text)) return this.mapping(indent, path, depth);
    this.at++;
    return this.scalarOrFlow(row.text, row, path, depth);
  }

  sequence(indent, path, depth) {
    const items = [];
    for (this.skip(); this.row && this.row.indent === indent && /^-(\s|$)/.test(this.row.text); this.skip()) {
      const row = this.row;
      const here = [...path, items.length];
      this.mark(here, row.line);
      const rest = row.text.slice(1).trimStart();
      if (rest === "") {
        this.at++;
        items.push(this.below(indent, here, depth));
      } else {
        // What follows the dash is a node of its own, indented by the dash and its spaces.
        const inner = indent + row.text.length - rest.length;
        this.rows[this.at] = { ...row, indent: inner, text: rest };
        items.push(this.node(inner, here, depth + 1));
      }
    }
    this.expectEnd(indent);
    return items;
  }

  mapping(indent, path, depth) {
    const found = {};
    for (this.skip(); this.row && this.row.indent === indent && !/^-(\s|$)/.test(this.row.text); this.skip()) {
      const row = this.row;
      const match = KEY.exec(row.text);
      if (!match) throw new YamlError(row.line, "expected `key: value`");
      const key = match[1] !== undefined ? unescaped(match[1], row.line) : (match[2]?.replaceAll("''", "'") ?? match[3]);
      const here = [...path, key];
      this.mark(here, row.line);
      const rest = row.text.slice(match[0].length).trim();
      this.at++;
      const value = rest === "" ? this.below(indent, here, depth, true) : this.scalarOrFlow(rest, row, here, depth + 1);
      define(found, key, value, row.line);
    }
    this.expectEnd(indent);
    return found;
  }

  // The value on the lines below a key or a dash; null without one. A sequence may start in the column of its key.
  below(indent, path, depth, ofKey = false) {
    this.skip();
    const row = this.row;
    if (!row) return null;
    const dash = ofKey && row.indent === indent && /^-(\s|$)/.test(row.text);
    return row.indent > indent || dash ? this.node(row.indent, path, depth + 1) : null;
  }

  expectEnd(indent) {
    this.skip();
    if (this.row && this.row.indent > indent) throw new YamlError(this.row.line, "is indented more than the lines before it");
  }

  scalarOrFlow(text, row, path, depth) {
    if ("&*!|>%@`".includes(text[0]))
      throw new YamlError(row.line, `\`${text[0]}\` is YAML that this page does not read; write the value out, or use JSON`);
    if (!"[{\"'".includes(text[0])) return plain(text);
    const flow = new Flow(this, text, row.line, depth);
    const value = flow.value(path);
    flow.end();
    return value;
  }

  mark(path, line) {
    this.lines.set(dotted(path), line);
  }
}

// Flow style and quoted scalars, over as many lines as their brackets stay open.
class Flow {
  constructor(reader, text, line, depth) {
    Object.assign(this, { reader, text, line, depth, at: 0 });
  }

  value(path) {
    this.space();
    this.reader.mark(path, this.line);
    const first = this.text[this.at];
    if (first === "[") return this.items(path);
    if (first === "{") return this.members(path);
    if (first === '"' || first === "'") return this.quoted();
    const match = /^[^,[\]{}]*/.exec(this.text.slice(this.at))[0].replace(/\s+#.*$/, "");
    this.at += match.length;
    if ("&*!|>%@`".includes(match.trim()[0] ?? "x")) throw new YamlError(this.line, `cannot read \`${match.trim()}\``);
    return plain(match.trim());
  }

  items(path) {
    const items = [];
    this.open();
    while (this.peek() !== "]") {
      items.push(this.value([...path, items.length]));
      if (this.peek() === ",") this.at++;
      else if (this.peek() !== "]") throw new YamlError(this.line, "expected `,` or `]`");
    }
    this.close();
    return items;
  }

  members(path) {
    const found = {};
    this.open();
    while (this.peek() !== "}") {
      const key = "\"'".includes(this.peek()) ? this.quoted() : this.plainKey();
      if (this.peek() !== ":") throw new YamlError(this.line, `expected \`:\` after ${key}`);
      this.at++;
      define(found, key, this.value([...path, key]), this.line);
      if (this.peek() === ",") this.at++;
      else if (this.peek() !== "}") throw new YamlError(this.line, "expected `,` or `}`");
    }
    this.close();
    return found;
  }

  open() {
    if (++this.depth > MAX_DEPTH) throw new YamlError(this.line, "is nested too deep");
    this.at++;
  }

  close() {
    this.depth--;
    this.at++;
  }

  plainKey() {
    const match = /^[^:,[\]{}]+/.exec(this.text.slice(this.at))?.[0];
    if (!match) throw new YamlError(this.line, "expected a key");
    this.at += match.length;
    return match.trim();
  }

  quoted() {
    const rest = this.text.slice(this.at);
    const match = (rest[0] === '"' ? /^"((?:[^"\\]|\\.)*)"/ : /^'((?:[^']|'')*)'/).exec(rest);
    if (!match) throw new YamlError(this.line, "has a quote that does not end on its line");
    this.at += match[0].length;
    return rest[0] === '"' ? unescaped(match[1], this.line) : match[1].replaceAll("''", "'");
  }

  peek() {
    this.space();
    return this.text[this.at];
  }

  // Skips space and comments; goes on with the next line at the end of one.
  space() {
    for (;;) {
      this.at += /^\s*/.exec(this.text.slice(this.at))[0].length;
      if (this.at < this.text.length) return;
      this.reader.skip();
      const row = this.reader.row;
      if (!row) throw new YamlError(this.line, "has a bracket that is not closed");
      this.reader.at++;
      Object.assign(this, { text: row.text, line: row.line, at: 0 });
    }
  }

  end() {
    const rest = this.text.slice(this.at).trim();
    if (rest) throw new YamlError(this.line, `cannot read \`${rest.slice(0, 30)}\` after the value`);
  }
}

// A line without its comment and outer space. `#` starts a comment after a space, outside of quotes.
function content(raw) {
  let quote = null;
  for (let i = 0; i < raw.length; i++) {
    const c = raw[i];
    if (quote === '"' && c === "\\") i++;
    else if (quote) quote = c === quote ? null : quote;
    else if ((c === '"' || c === "'") && /^$|[\s[{,:]$/.test(raw.slice(0, i))) quote = c;
    else if (c === "#" && (i === 0 || /\s/.test(raw[i - 1]))) return raw.slice(0, i).trim();
  }
  return raw.trim();
}

function plain(text) {
  if (CORE.has(text)) return CORE.get(text);
  return NUMBER.test(text) || RADIX.test(text) ? Number(text) : text;
}

function unescaped(text, line) {
  try {
    return JSON.parse(`"${text}"`);
  } catch {
    throw new YamlError(line, "has an escape that JSON does not have");
  }
}

function define(target, key, value, line) {
  if (Object.hasOwn(target, key)) throw new YamlError(line, `has the key \`${key}\` twice`);
  // Not an assignment: `__proto__` is a key like any other.
  Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
}

// The path of a value as the API writes it: `workloads[0].slo.ttft_ms`.
export const dotted = (path) =>
  path.reduce((text, part) => (typeof part === "number" ? `${text}[${part}]` : text ? `${text}.${part}` : part), "");

const FLOW_WIDTH = 90;
// Texts that need no quotes; and among them those that a reader of YAML 1.1 takes for something else.
const SAFE = /^[A-Za-z0-9_./($+][A-Za-z0-9_./()%$ +-]*$/;
const OTHER_MEANING = /^(y|n|yes|no|on|off|true|false|null|[-+]?[0-9][0-9a-fx_o.+-]*|[-+]?\.(inf|nan|[0-9].*))$/i;

export function stringify(value) {
  return `${block(value, 0)}\n`;
}

function block(value, indent) {
  const pad = " ".repeat(indent);
  if (Array.isArray(value) && value.length && !fitsFlow(value, indent))
    return value.map((item) => `${pad}- ${block(item, indent + 2).trimStart()}`).join("\n");
  if (isMap(value) && Object.keys(value).length && (indent === 0 || !fitsFlow(value, indent)))
    return Object.entries(value).map(([key, item]) => `${pad}${scalar(key)}:${member(item, indent)}`).join("\n");
  return pad + flow(value);
}

function member(item, indent) {
  const nested = item !== null && typeof item === "object" && Object.keys(item).length && !fitsFlow(item, indent);
  if (!nested) return ` ${flow(item)}`;
  return `\n${block(item, indent + 2)}`;
}

// Lists of mappings are easier to read and to edit as blocks; lists and mappings of figures on one line.
function fitsFlow(value, indent) {
  const items = Object.values(value);
  if (Array.isArray(value) && items.some(isMap)) return false;
  return items.every((item) => !isMap(item) || Object.values(item).every((each) => typeof each !== "object" || each === null)) &&
    flow(value).length + indent < FLOW_WIDTH;
}

function flow(value) {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (isMap(value)) return `{${Object.entries(value).map(([key, item]) => `${scalar(key)}: ${flow(item)}`).join(", ")}}`;
  return scalar(value);
}

function scalar(value) {
  if (typeof value === "number") return JSON.stringify(value).replace(/^(-?\d+)e/, "$1.0e"); // a reader of YAML 1.1 needs the point
  if (typeof value !== "string") return JSON.stringify(value ?? null);
  const safe = SAFE.test(value) && !/\s$/.test(value) && !OTHER_MEANING.test(value) && typeof plain(value) === "string";
  return safe ? value : JSON.stringify(value);
}

const isMap = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
