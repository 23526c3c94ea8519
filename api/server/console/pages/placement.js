// Placements: heat maps of the load of GPUs and experts, the imbalance against its bound, and the file for an engine.

import { call, page as readPage, result } from "../lib/api.js";
import { heatLegend, heatmap, lines } from "../lib/charts.js";
import { download, h, put } from "../lib/dom.js";
import { num, percent, plural, short } from "../lib/format.js";
import { action, badge, card, facts, field, link, paged, select, table, tile, tiles, time } from "../lib/ui.js";

const ENGINES = [
  ["sglang", "SGLang", "json"],
  ["vllm", "vLLM", "json"],
  ["trtllm", "TensorRT-LLM", "yaml"],
  ["ascend", "vLLM Ascend", "json"],
];

export async function overview(context) {
  context.title = "Placements";
  const columns = [
    { head: "Placement", cell: (row) => link(`#/placements/${row.id}`, h("code", {}, short(row.id))) },
    { head: "Created", cell: (row) => time(row.created_at) },
    { head: "Model", cell: (row) => row.model ?? "–" },
    { head: "GPUs", number: true, cell: (row) => num(row.gpus) },
    { head: "Nodes", number: true, cell: (row) => num(row.nodes) },
    { head: "Slots", number: true, cell: (row) => num(row.slots) },
    { head: "Imbalance", number: true, cell: (row) => num(row.imbalance, 4) },
    { head: "Bound", number: true, cell: (row) => num(row.bound, 4) },
    { head: "Ceiling", cell: (row) => badge(row.holds ? "holds" : "missed", { tone: row.holds ? "good" : "bad" }) },
    { head: "Moved", number: true, cell: (row) => num(row.moved_copies) },
  ];
  const found = await paged((cursor) => readPage("v1/placements", { limit: 50, cursor, signal: context.signal }), (items) => table("Stored placements, newest first", columns, items), {
    none: "No placement yet. `fleetwright place make --url …` stores one.",
  });
  return [
    h("div", { class: "head" }, h("h1", {}, "Placements"), h("p", { class: "lead" }, "Which GPU holds which experts. An imbalance of 1 is an even load.")),
    card("Stored placements", found),
  ];
}

export async function page(context) {
  const { id } = context.params;
  const { placement, created_at, created_by } = await result(`v1/placements/${id}`, context.signal);
  context.title = `Placement ${short(id)}`;
  const view = new View(placement);
  const engine = select(ENGINES.map(([name, text]) => [name, text]), { value: "sglang" });
  const save = async () => {
    const [name, , ending] = ENGINES.find(([each]) => each === engine.value);
    const { data, type } = await call("GET", `v1/placements/${id}/export?engine=${name}`, { text: true });
    download(`placement-${short(id).slice(1)}-${name}.${ending}`, data, type);
  };
  const before = placement.predictions.before;
  return [
    h(
      "div",
      { class: "head" },
      h("p", { class: "crumbs" }, link("#/placements", "Placements"), " / ", h("code", {}, id)),
      h("h1", {}, placement.model ?? "Placement"),
      badge(placement.holds ? "holds" : "missed", { tone: placement.holds ? "good" : "bad", text: placement.holds ? "holds its ceiling" : "misses its ceiling" }),
      h("p", { class: "lead" }, "Created ", time(created_at), ` by ${created_by}`),
    ),
    tiles(
      tile("Imbalance", num(placement.imbalance.mean, 4), `mean of the layers; worst ${num(placement.imbalance.max, 3)}`),
      tile("Bound", num(placement.bound.mean, 4), placement.gap === null ? "no placement is below" : `${percent(placement.gap, 2)} from it at most`),
      tile("Before", num(before.imbalance.mean, 3), before.what),
      tile("Layout", `${num(placement.gpus)} GPUs`, `${plural(placement.nodes, "node")}, ${num(placement.slots)} slots for ${num(placement.experts)} experts`),
      tile("Moves", num(placement.moved_copies), placement.moves ? `${num(placement.moves.duration_s, 0)} s` : "copies from other GPUs"),
    ),
    h(
      "div",
      { class: "rows" },
      view.imbalanceCard(),
      view.gpuCard(),
      view.layerCard(),
      h(
        "div",
        { class: "columns" },
        card("Export", h("div", { class: "fields" }, field("Engine", engine)), h("p", {}, action("Download the file", save))),
        card(
          "Details",
          facts([
            ["Dispatch", placement.dispatch],
            ["Method", placement.method],
            ["Solved in", `${num(placement.solve_s, 2)} s`],
            ["Remote nodes per token", num(placement.remote_nodes_per_token, 3)],
            ["Load windows", num(placement.provenance.windows)],
            placement.predictions.redundancy ? ["An even load needs", plural(placement.predictions.redundancy.slots, "slot")] : null,
          ]),
        ),
      ),
    ),
  ];
}

class View {
  constructor(placement) {
    this.placement = placement;
    this.gpuOfSlot = [];
    const slots = placement.gpu_slots ?? new Array(placement.gpus).fill(placement.slots / placement.gpus);
    slots.forEach((count, gpu) => this.gpuOfSlot.push(...new Array(count).fill(gpu)));
    this.speeds = placement.gpu_speeds ?? new Array(placement.gpus).fill(1);
    this.layers = placement.physical_to_logical_map.map((_, row) => this.loadsOf(row));
  }

  // The load of each slot with an even split between the copies of an expert, as a multiple of an even load per GPU.
  loadsOf(row) {
    const experts = this.placement.physical_to_logical_map[row];
    const loads = this.placement.loads[row];
    const copies = new Array(this.placement.experts).fill(0);
    for (const expert of experts) copies[expert]++;
    const total = loads.reduce((sum, load) => sum + load, 0);
    const even = total / this.speeds.reduce((sum, speed) => sum + speed, 0) || 1;
    const slots = experts.map((expert, slot) => loads[expert] / copies[expert] / even / this.speeds[this.gpuOfSlot[slot]]);
    const gpus = new Array(this.placement.gpus).fill(0);
    slots.forEach((load, slot) => (gpus[this.gpuOfSlot[slot]] += load));
    return { slots, gpus, copies };
  }

  layerName(row) {
    return this.placement.layers[row];
  }

  imbalanceCard() {
    const { imbalance, bound } = this.placement;
    const worst = imbalance.per_layer.map((value, row) => ({ value, row })).sort((a, b) => b.value - a.value).slice(0, 8);
    return card(
      "Imbalance of each layer against its bound",
      h(
        "div",
        { class: "columns" },
        imbalance.per_layer.length > 1
          ? lines("Imbalance and bound of each layer", {
              step: 1,
              from: Math.max(0, Math.min(...bound.per_layer) * 0.98),
              lines: [
                { values: bound.per_layer, class: "mean" },
                { values: imbalance.per_layer, class: "max" },
              ],
              levels: this.placement.provenance.max_imbalance ? [{ label: "ceiling", value: this.placement.provenance.max_imbalance }] : [],
              xText: "MoE layer, in order (blue: bound, orange: this placement)",
              yText: "Load of the fullest GPU over even",
            })
          : null,
        table(
          "Layers with the highest imbalance",
          [
            { head: "Layer", number: true, cell: (each) => num(this.layerName(each.row)) },
            { head: "Imbalance", number: true, cell: (each) => num(each.value, 4) },
            { head: "Bound", number: true, cell: (each) => num(bound.per_layer[each.row], 4) },
            { head: "Above", number: true, cell: (each) => percent(each.value / bound.per_layer[each.row] - 1, 2) },
          ],
          worst,
        ),
      ),
    );
  }

  gpuCard() {
    const all = this.layers.flatMap((layer) => layer.gpus);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    return card(
      "Load of each GPU in each layer",
      h("p", { class: "muted" }, "As a multiple of an even load, with an even split between the copies of an expert. ", heatLegend(low, high, (value) => num(value, 2))),
      heatmap("Load of each GPU in each layer", {
        rows: this.layers.length,
        columns: this.placement.gpus,
        value: (row, gpu) => this.layers[row].gpus[gpu],
        low,
        high,
        rowText: (row) => this.layerName(row),
        columnText: (gpu) => gpu,
        cellText: (row, gpu, load) => `layer ${this.layerName(row)}, GPU ${gpu}: ${num(load, 3)}`,
        rowName: "Layer",
        columnName: "GPU",
      }),
    );
  }

  layerCard() {
    const holder = h("div", {});
    const choice = select(
      this.layers.map((_, row) => [row, `layer ${this.layerName(row)}`]),
      { value: 0, onchange: () => this.drawLayer(holder, Number(choice.value)) },
    );
    const worst = this.placement.imbalance.per_layer.indexOf(this.placement.imbalance.max);
    choice.value = String(Math.max(0, worst));
    this.drawLayer(holder, Math.max(0, worst));
    return card("Experts on GPUs", h("div", { class: "fields" }, field("Layer", choice, { hint: "first shown: the worst" })), holder);
  }

  drawLayer(holder, row) {
    const { placement } = this;
    const { slots, copies } = this.layers[row];
    const cells = new Map();
    placement.physical_to_logical_map[row].forEach((expert, slot) => {
      const key = expert * placement.gpus + this.gpuOfSlot[slot];
      cells.set(key, (cells.get(key) ?? 0) + slots[slot]);
    });
    // The experts with the highest load first: they are the ones that get copies.
    const order = copies.map((_, expert) => expert).sort((a, b) => placement.loads[row][b] - placement.loads[row][a]);
    const shown = order.slice(0, 64);
    const high = Math.max(...cells.values());
    put(
      holder,
      h("p", { class: "muted" }, `${shown.length < order.length ? `The ${shown.length} experts with the highest load of ${order.length}` : "All experts"}, highest first; a cell is a copy and its share of an even GPU load. `, heatLegend(0, high, (value) => num(value, 2))),
      heatmap(`Load of experts on GPUs in layer ${this.layerName(row)}`, {
        rows: shown.length,
        columns: placement.gpus,
        value: (index, gpu) => cells.get(shown[index] * placement.gpus + gpu) ?? null,
        low: 0,
        high,
        rowText: (index) => shown[index],
        columnText: (gpu) => gpu,
        cellText: (index, gpu, load) => `expert ${shown[index]} (${copies[shown[index]]} copies) on GPU ${gpu}: ${num(load, 3)}`,
        rowName: "Expert",
        columnName: "GPU",
      }),
    );
  }
}
