"""The expert-parallel group of named nodes of a topology: its layout and the cost of a byte between nodes.

docs/explanation/placement/dispatch.md has the rules for slots and speeds.  Costs [nodes, nodes] are seconds per byte
between two nodes over those of the cheapest pair, 0 within a node.  A byte passes (all in GB/s of one node and
direction):

    scale-up    gpus x link_gb_per_s            between nodes of one scale-up domain, and nothing else then
    NICs        leaves x nic_gb_per_s           of either node
    uplinks     sum over the node's leaves of links x link_gb_per_s of all uplinks / nodes of the group on the leaf
                                                where the two nodes share no leaf
    spines      the same for the uplinks of the spines, shared by the group's nodes below
                                                where they share no spine either

The cost is 1 / the lowest of these.  A figure that the topology does not give is no limit.  A pair without any known
figure costs as much as the most expensive known pair.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from fleet.documents import RuleError, Violation
from fleet.gpus import GpuCatalogue, GpuSpec, Precision
from fleet.topology import Distance, Node, TopologyIndex
from placement.arrays import MAX_EXPERTS, MAX_LAYERS, Floats
from placement.layout import MAX_EXPERT_BYTES, Layout, filled, slots_in

Figure = Literal["bandwidth"] | Precision


@dataclass(frozen=True)
class ExpertMemory:
    """The memory of experts and its limit per GPU."""

    experts: int  # of one layer
    layers: int  # MoE layers
    expert_bytes: int  # weights of one expert of one layer
    memory_share: float  # of each GPU's memory

    def __post_init__(self) -> None:
        RuleError.raise_for(self._violations())

    def slots_on(self, gpu: GpuSpec) -> int:
        """Slots of each layer on a GPU."""
        share = gpu.memory_bytes * self.memory_share
        return slots_in(share, experts=self.experts, layers=self.layers, expert_bytes=self.expert_bytes)

    def _violations(self) -> Iterator[Violation]:
        if not 1 <= self.experts <= MAX_EXPERTS:
            yield ("experts",), f"must be from 1 to {MAX_EXPERTS}, got {self.experts}"
        if not 1 <= self.layers <= MAX_LAYERS:
            yield ("layers",), f"must be from 1 to {MAX_LAYERS}, got {self.layers}"
        if not 1 <= self.expert_bytes <= MAX_EXPERT_BYTES:
            yield ("expert_bytes",), f"must be from 1 to {MAX_EXPERT_BYTES}, got {self.expert_bytes}"
        if not 0 < self.memory_share <= 1:
            yield ("memory_share",), f"must be above 0 and at most 1, got {self.memory_share:g}"


@dataclass(frozen=True, eq=False)
class ExpertGroup:
    """Nodes whose GPUs share a model's experts.  Create with `expert_group`."""

    nodes: tuple[str, ...]  # in the order their GPUs are numbered
    layout: Layout
    node_costs: Floats  # [nodes, nodes], symmetric; 1 is the cheapest pair, 0 the same node


def expert_group(
    index: TopologyIndex,
    nodes: Sequence[str],
    *,
    catalogue: GpuCatalogue,
    memory: ExpertMemory,
    slots: int | None = None,
    figure: Figure = "bandwidth",
) -> ExpertGroup:
    """The group of these nodes, with near nodes adjacent; without `slots` as many as memory holds."""
    ordered = near_together(index, nodes)
    found = [index.node(name) for name in ordered]
    RuleError.raise_for(_node_violations(found))
    kinds = [catalogue.get(node.gpu) for node in found if node.gpu is not None]
    RuleError.raise_for(_kind_violations(found, kinds, memory, figure))
    gpus = [kind for node, kind in zip(found, kinds, strict=True) for _ in range(node.gpus)]
    capacity = [memory.slots_on(kind) for kind in gpus]
    RuleError.raise_for(_slots_violations(capacity, slots, memory))
    figures = [_figure(kind, figure) for kind in gpus]
    layout = Layout.of(
        node_of_gpu=[at for at, node in enumerate(found) for _ in range(node.gpus)],
        slots_of_gpu=capacity if slots is None else filled(capacity, slots),
        speeds=[one / max(figures) for one in figures],
    )
    return ExpertGroup(ordered, layout, _costs(index, found, kinds))


def near_together(index: TopologyIndex, nodes: Sequence[str]) -> tuple[str, ...]:
    """The nodes, each followed by the nearest remaining one; the first given node first, ties in the given order."""
    RuleError.raise_for(_name_violations(nodes))
    left = [index.node(name).name for name in nodes]
    ordered = [left.pop(0)]
    while left:
        nearest = min(left, key=lambda name: (_farness(index, ordered[-1], name), nodes.index(name)))
        left.remove(nearest)
        ordered.append(nearest)
    return tuple(ordered)


def _farness(index: TopologyIndex, here: str, there: str) -> tuple[int, int]:
    """The distance between two nodes; of nodes that share leaves, more leaves are nearer."""
    shared = set(index.node(here).leaves) & set(index.node(there).leaves)
    return index.distance(here, there), -len(shared)


def _figure(gpu: GpuSpec, figure: Figure) -> float:
    return gpu.bandwidth_gb_per_s if figure == "bandwidth" else gpu.dense_tflops[figure]


def _costs(index: TopologyIndex, nodes: Sequence[Node], kinds: Sequence[GpuSpec]) -> Floats:
    ways = _Ways(index, nodes, kinds)
    costs = np.array([[ways.s_per_gb(here, there) for there in range(len(nodes))] for here in range(len(nodes))])
    known = costs[(costs > 0) & np.isfinite(costs)]
    dearest, cheapest = (known.max(), known.min()) if len(known) else (1.0, 1.0)
    costs[~np.isfinite(costs)] = dearest
    found: Floats = costs / cheapest
    return found


class _Ways:
    def __init__(self, index: TopologyIndex, nodes: Sequence[Node], kinds: Sequence[GpuSpec]) -> None:
        self._index = index
        self._nodes = nodes
        self._kinds = kinds

    def s_per_gb(self, here: int, there: int) -> float:
        """0 within a node, infinite where no figure is known."""
        if here == there:
            return 0.0
        distance = self._index.distance(self._nodes[here].name, self._nodes[there].name)
        if distance is Distance.UNKNOWN:
            return inf
        narrowest = min(self._gb_per_s(at, distance) for at in (here, there))
        return inf if narrowest == inf else 1 / narrowest

    def _gb_per_s(self, at: int, distance: Distance) -> float:
        """The narrowest link on one node's side; infinite where no figure is given."""
        node = self._nodes[at]
        if distance is Distance.SAME_SCALE_UP:
            return node.gpus * self._kinds[at].link_gb_per_s
        narrowest = inf if node.nic_gb_per_s is None else len(node.leaves) * node.nic_gb_per_s
        if distance >= Distance.SAME_RAIL:
            narrowest = min(narrowest, self._part_of_uplinks(node.leaves))
        if distance >= Distance.VIA_CORE:
            narrowest = min(narrowest, self._part_of_uplinks(self._spines_of(node)))
        return narrowest

    def _part_of_uplinks(self, switches: Sequence[str]) -> float:
        """A node's part of the uplinks of these switches, when all nodes of the group below send equally."""
        total = 0.0
        for name in dict.fromkeys(switches):
            switch = self._index.switch(name)
            if switch.link_gb_per_s is None:
                return inf
            up_gb_per_s = len(switch.uplinks) * switch.links_per_uplink * switch.link_gb_per_s
            total += up_gb_per_s / sum(name in self._above(node) for node in self._nodes)
        return total

    def _above(self, node: Node) -> set[str]:
        return {*node.leaves, *self._spines_of(node)}

    def _spines_of(self, node: Node) -> tuple[str, ...]:
        return tuple(dict.fromkeys(up for leaf in node.leaves for up in self._index.switch(leaf).uplinks))


def _name_violations(nodes: Sequence[str]) -> Iterator[Violation]:
    if not nodes:
        yield ("nodes",), "must name at least one node"
    for at, name in enumerate(nodes):
        if name in nodes[:at]:
            yield ("nodes", at), f"is named before: {name!r}"


def _node_violations(nodes: Sequence[Node]) -> Iterator[Violation]:
    for at, node in enumerate(nodes):
        if node.gpus < 1:
            yield ("nodes", at), f"must have at least 1 GPU, {node.name!r} has none"
        elif node.gpu is None:
            yield ("nodes", at), f"must have GPUs of a known type, those of {node.name!r} are not named"


def _kind_violations(
    nodes: Sequence[Node], kinds: Sequence[GpuSpec], memory: ExpertMemory, figure: Figure
) -> Iterator[Violation]:
    for at, (node, kind) in enumerate(zip(nodes, kinds, strict=True)):
        if memory.slots_on(kind) < 1:
            least = memory.layers * memory.expert_bytes / kind.memory_bytes
            message = f"must be at least {least:.3g} for one expert per layer on a {kind.name} of {node.name!r}"
            yield ("memory_share",), f"{message}, got {memory.memory_share:g}"
        if figure not in ("bandwidth", *kind.dense_tflops):
            allowed = ", ".join(("bandwidth", *kind.dense_tflops))
            yield ("figure",), f"must be one that is known of {kind.name} ({allowed}), got {figure!r} for nodes[{at}]"


def _slots_violations(capacity: Sequence[int], slots: int | None, memory: ExpertMemory) -> Iterator[Violation]:
    most = sum(capacity)
    if most < memory.experts:
        yield ("nodes",), f"must hold all {memory.experts} experts of a layer, there is memory for {most} slots"
    elif slots is not None and not max(memory.experts, len(capacity)) <= slots <= most:
        least = max(memory.experts, len(capacity))
        yield ("slots",), f"must be from {least} to what memory holds ({most}), got {slots}"
