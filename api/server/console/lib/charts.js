// Charts as SVG. Colours come from the style sheet by class, and every chart has its figures as text for readers of
// screens: in its label, in titles, or in the table beside it.

import { h, s } from "./dom.js";
import { num } from "./format.js";

export const series = (index) => `series-${index % 6}`;

// Horizontal bars. Rows: {label, value, text, limit?, limitText?, series?, tone?, href?}.
export function bars(label, rows, { max = null } = {}) {
  const top = max ?? Math.max(...rows.flatMap((row) => [row.value ?? 0, row.limit ?? 0]), Number.MIN_VALUE);
  const share = (value) => `${Math.min(100, (100 * value) / top).toFixed(2)}%`;
  return h(
    "ul",
    { class: "bars", "aria-label": label },
    rows.map((row, index) =>
      h(
        "li",
        {},
        h("span", { class: "bar-label", title: row.label }, row.href ? h("a", { href: row.href }, row.label) : row.label),
        s(
          "svg",
          { class: "bar-track", "aria-hidden": "true", width: "100%", height: "14" },
          s("rect", { class: "track", width: "100%", height: "14", rx: "3" }),
          s("rect", { class: row.tone ?? series(row.series ?? index), width: share(row.value ?? 0), height: "14", rx: "3" }),
          row.limit !== undefined &&
            row.limit !== null &&
            s("line", { class: "limit", x1: share(row.limit), x2: share(row.limit), y1: "-2", y2: "16" }),
        ),
        h("span", { class: "bar-text number" }, row.text ?? num(row.value), row.limitText && h("small", {}, ` ${row.limitText}`)),
      ),
    ),
  );
}

// Parts of a whole in one line. Parts: {label, value, series}.
export function stack(label, parts) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  let x = 0;
  return s(
    "svg",
    { class: "stack", role: "img", "aria-label": label, width: "100%", height: "14" },
    parts.map((part) => {
      const width = (100 * part.value) / total;
      const rect = s(
        "rect",
        { class: series(part.series), x: `${x}%`, width: `${width}%`, height: "14" },
        s("title", {}, `${part.label}: ${num((100 * part.value) / total, 1)} %`),
      );
      x += width;
      return rect;
    }),
  );
}

export const legend = (items) =>
  h("ul", { class: "legend" }, items.map(({ label, index }) => h("li", {}, swatch(index), label)));

const swatch = (index) =>
  s("svg", { width: "10", height: "10", "aria-hidden": "true" }, s("rect", { class: series(index), width: "10", height: "10", rx: "2" }));

const WIDTH = 640;
const LEFT = 76;
const RIGHT = 16;
const TOP = 14;
const BOTTOM = 42;

function ticks(low, high, count = 5) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
  return found;
}

function axes({ x, y, height, xText, yText, xFormat, yFormat }) {
  const bottom = height - BOTTOM;
  return [
    y.ticks.map((tick) => [
      s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y.at(tick), y2: y.at(tick) }),
      s("text", { class: "tick", x: LEFT - 8, y: y.at(tick) + 4, "text-anchor": "end" }, yFormat(tick)),
    ]),
    x.ticks.map((tick) => s("text", { class: "tick", x: x.at(tick), y: bottom + 16, "text-anchor": "middle" }, xFormat(tick))),
    s("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: bottom, y2: bottom }),
    s("text", { class: "axis-title", x: (LEFT + WIDTH - RIGHT) / 2, y: height - 6, "text-anchor": "middle" }, xText),
    s("text", { class: "axis-title", x: 12, y: TOP + (bottom - TOP) / 2, transform: `rotate(-90 12 ${TOP + (bottom - TOP) / 2})`, "text-anchor": "middle" }, yText),
  ];
}

function scale(low, high, from, to) {
  const span = high - low || 1;
  return { at: (value) => from + ((value - low) / span) * (to - from), ticks: ticks(low, high) };
}

// Points: {x, y, label, href, front}. The front is joined by a line.
export function scatter(label, points, { xText, yText, xFormat = num, yFormat = num, height = 300 }) {
  const xs = points.map((point) => point.x);
  const ys = points.map((point) => point.y);
  const margin = (Math.max(...xs) - Math.min(...xs)) * 0.06 || Math.max(...xs) * 0.1 || 1;
  const x = scale(Math.max(0, Math.min(...xs) - margin), Math.max(...xs) + margin, LEFT, WIDTH - RIGHT);
  const y = scale(0, Math.max(...ys) * 1.1 || 1, height - BOTTOM, TOP);
  const front = points.filter((point) => point.front).sort((a, b) => a.x - b.x);
  return s(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "group", "aria-label": label },
    axes({ x, y, height, xText, yText, xFormat, yFormat }),
    s("polyline", { class: "front", points: front.map((point) => `${x.at(point.x)},${y.at(point.y)}`).join(" ") }),
    points.map((point) =>
      s(
        "circle",
        { class: point.front ? "point on-front" : "point", cx: x.at(point.x), cy: y.at(point.y), r: 5.5, role: "img", "aria-label": point.label },
        s("title", {}, point.label),
      ),
    ),
  );
}

// Lines over the same x. Lines: {label, values, class}. Levels: {label, value}.
export function lines(label, { step, from = 0, lines: drawn, levels = [], marks = [], xText, yText, xFormat = num, yFormat = num, height = 260 }) {
  const count = Math.max(...drawn.map((line) => line.values.length));
  const top = Math.max(...drawn.flatMap((line) => line.values), ...levels.map((level) => level.value)) * (from ? 1.01 : 1.08) || 1;
  const x = scale(0, step * Math.max(1, count - 1), LEFT, WIDTH - RIGHT);
  const y = scale(from, top, height - BOTTOM, TOP);
  const points = (values) => values.map((value, index) => `${x.at(index * step).toFixed(1)},${y.at(value).toFixed(1)}`).join(" ");
  return s(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label },
    axes({ x, y, height, xText, yText, xFormat, yFormat }),
    levels.map((level) => [
      s("line", { class: "limit", x1: LEFT, x2: WIDTH - RIGHT, y1: y.at(level.value), y2: y.at(level.value) }),
      s("text", { class: "tick", x: WIDTH - RIGHT - 4, y: y.at(level.value) - 5, "text-anchor": "end" }, level.label),
    ]),
    drawn.map((line) => s("polyline", { class: `line ${line.class}`, points: points(line.values) })),
    marks.map((mark) =>
      s("line", { class: "mark", x1: x.at(mark.at), x2: x.at(mark.at), y1: TOP, y2: height - BOTTOM }, s("title", {}, mark.label)),
    ),
  );
}

const MAX_CELLS = 8000;

// A heat map of rows x columns. Values: (row, column) -> figure or null. Columns beyond what fits are joined by their
// maximum. The colour runs from `low` to `high`.
export function heatmap(label, { rows, columns, value, low, high, rowText, columnText, cellText, rowName, columnName }) {
  const joined = Math.max(1, Math.ceil((rows * columns) / MAX_CELLS), Math.ceil(columns / 256));
  const shown = Math.ceil(columns / joined);
  const left = 46;
  const cellWidth = Math.max(2, Math.min(60, Math.floor((1140 - left) / shown)));
  const cellHeight = Math.max(4, Math.min(18, Math.floor(520 / rows)));
  const width = left + shown * cellWidth;
  const up = 8;
  const height = up + rows * cellHeight + 34;
  const cells = [];
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < shown; column++) {
      let figure = null;
      let which = column * joined;
      for (let each = column * joined; each < Math.min(columns, (column + 1) * joined); each++) {
        const found = value(row, each);
        if (found !== null && (figure === null || found > figure)) [figure, which] = [found, each];
      }
      if (figure === null) continue;
      const level = Math.max(0, Math.min(9, Math.round((9 * (figure - low)) / (high - low || 1))));
      cells.push(
        s(
          "rect",
          { class: `heat-${level}`, x: left + column * cellWidth, y: up + row * cellHeight, width: cellWidth - (cellWidth > 5 ? 1 : 0), height: cellHeight - (cellHeight > 7 ? 1 : 0) },
          s("title", {}, cellText(row, which, figure)),
        ),
      );
    }
  const every = (count, space) => Math.max(1, Math.ceil((count * space) / 100));
  const rowStep = Math.max(1, Math.ceil(12 / cellHeight));
  const columnStep = every(shown, Math.ceil((100 * 26) / cellWidth) / shown);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    s(
      "svg",
      { class: "heatmap", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
      cells,
      Array.from({ length: Math.ceil(rows / rowStep) }, (_, index) => index * rowStep).map((row) =>
        s("text", { class: "tick", x: left - 6, y: up + row * cellHeight + cellHeight / 2 + 4, "text-anchor": "end" }, rowText(row)),
      ),
      Array.from({ length: Math.ceil(shown / columnStep) }, (_, index) => index * columnStep).map((column) =>
        s("text", { class: "tick", x: left + (column + 0.5) * cellWidth, y: up + rows * cellHeight + 13, "text-anchor": "middle" }, columnText(column * joined)),
      ),
      s("text", { class: "axis-title", x: left + (shown * cellWidth) / 2, y: height - 5, "text-anchor": "middle" }, joined > 1 ? `${columnName} (${joined} in one cell: the highest)` : columnName),
      s("text", { class: "axis-title", x: 10, y: (rows * cellHeight) / 2, transform: `rotate(-90 10 ${(rows * cellHeight) / 2})`, "text-anchor": "middle" }, rowName),
    ),
  );
}

export function heatLegend(low, high, format) {
  return h(
    "div",
    { class: "heat-legend" },
    h("span", { class: "number" }, format(low)),
    s("svg", { width: "150", height: "10", "aria-hidden": "true" }, Array.from({ length: 10 }, (_, level) => s("rect", { class: `heat-${level}`, x: level * 15, width: 15, height: 10 }))),
    h("span", { class: "number" }, format(high)),
  );
}

// A tree drawn from the left: nodes with a bar of their load against their limit.
// Nodes: {name, detail, href?, used, limit, budget, tone, children}.
export function tree(label, roots, { format }) {
  const rows = [];
  const visit = (node, depth, parent) => {
    const row = { node, depth, parent, index: rows.length };
    rows.push(row);
    for (const child of node.children) visit(child, depth + 1, row);
  };
  for (const root of roots) visit(root, 0, null);
  const rowHeight = 46;
  const indent = 26;
  const nameWidth = 130;
  const barLeft = nameWidth + 4 * indent;
  const width = 900;
  const barWidth = width - barLeft - 230;
  const height = rows.length * rowHeight;
  const y = (row) => row.index * rowHeight + rowHeight / 2;
  return s(
    "svg",
    { class: "tree", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label },
    rows.map((row) => {
      const { node, parent, depth } = row;
      const x = depth * indent;
      const top = Math.max(node.limit ?? 0, node.budget ?? 0, node.used ?? 0, node.uncapped ?? 0) || 1;
      const at = (value) => (value / top) * barWidth;
      return s(
        "g",
        { role: "img", "aria-label": node.detail },
        s("title", {}, node.detail),
        parent && s("path", { class: "branch", d: `M${parent.depth * indent + 9},${y(parent) + 9} V${y(row)} H${x}` }),
        s("rect", { class: `node ${node.tone}`, x, y: y(row) - 8, width: 16, height: 16, rx: 4 }),
        s("text", { class: "node-name", x: x + 24, y: y(row) - 1 }, node.name),
        s("text", { class: "tick", x: x + 24, y: y(row) + 13 }, node.kind),
        s("rect", { class: "track", x: barLeft, y: y(row) - 8, width: barWidth, height: 16, rx: 3 }),
        node.uncapped > node.used && s("rect", { class: "uncapped", x: barLeft, y: y(row) - 8, width: at(node.uncapped), height: 16, rx: 3 }),
        node.used !== null && s("rect", { class: node.tone === "bad" ? "bad" : "series-0", x: barLeft, y: y(row) - 8, width: at(node.used), height: 16, rx: 3 }),
        node.budget !== null && s("line", { class: "budget", x1: barLeft + at(node.budget), x2: barLeft + at(node.budget), y1: y(row) - 12, y2: y(row) + 12 }),
        node.limit !== null && s("line", { class: "limit", x1: barLeft + at(node.limit), x2: barLeft + at(node.limit), y1: y(row) - 12, y2: y(row) + 12 }),
        s("text", { class: "node-figure", x: barLeft + barWidth + 14, y: y(row) - 1 }, node.used === null ? "no plan yet" : format(node.used)),
        s("text", { class: "tick", x: barLeft + barWidth + 14, y: y(row) + 13 }, node.limit === null ? "no limit known" : `of ${format(Math.min(node.limit, node.budget ?? node.limit))}`),
      );
    }),
  );
}
