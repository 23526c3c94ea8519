"""The fabric of a job: every edge, the placement of its NICs, and its path by hash.

A flow takes one of the spines by a hash of its two ends (ECMP).  Acknowledgements are separate flows with their own
hash, and so are probes, which leave from their own source ports.  The detector can know less: `known` has no paths
where the operator cannot give them.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from faults.fabric import NOWHERE, Fabric, Ints, Traffic
from fleet.documents import RuleError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the job and its fabric.

    Every rank has its own NIC; the ranks of a node are one tensor group and never leave it.  A node is one (stage,
    replica) pair with neighbouring replicas, as Megatron numbers them, so a data group is a run of nodes on one rail.
    """

    ranks: int
    per_node: int = 8  # ranks, NICs and rails of a node
    stages: int = 8  # of the pipeline
    leaf_nodes: int = 32  # nodes that share the leaf switches, one leaf per rail
    spines: int = 16  # ways between two leaves of a rail
    experts: int = 0  # nodes of an expert group, all-to-all on each rail; 0: a dense model
    scattered: float = 0.1  # share of the nodes outside their slot: spares, holes
    trees: bool = True  # the double binary tree beside the ring

    def __post_init__(self) -> None:
        unit = self.per_node * self.stages
        RuleError.raise_for(self._violations(unit))

    def _violations(self, unit: int) -> list[tuple[tuple[str | int, ...], str]]:
        violations: list[tuple[tuple[str | int, ...], str]] = []
        if self.ranks < 2 * unit or self.ranks % unit:
            violations.append((("ranks",), f"expected a multiple of {unit} from {2 * unit} up, got {self.ranks}"))
        if not 0.0 <= self.scattered <= 1.0:
            violations.append((("scattered",), f"expected 0 to 1, got {self.scattered}"))
        if self.experts and (self.experts < 2 or self.replicas % self.experts):
            violations.append(
                (("experts",), f"expected 0 or a divisor of {self.replicas} from 2 up, got {self.experts}")
            )
        return violations

    @property
    def nodes(self) -> int:
        return self.ranks // self.per_node

    @property
    def replicas(self) -> int:
        return self.nodes // self.stages

    @property
    def pods(self) -> int:
        """Return the number of sets of nodes that share their leaves."""
        return -(-self.nodes // self.leaf_nodes)

    @property
    def leaves(self) -> int:
        return self.pods * self.per_node

    @property
    def uplinks(self) -> int:
        """Return the number of leaf-spine cables, each direction counted."""
        return 2 * self.leaves * self.spines


class Pairs(NamedTuple):
    source: Ints
    target: Ints
    traffic: Traffic


def pairs(shape: Shape) -> list[Pairs]:
    """Return the pairs of the data rings, double binary trees, pipeline and expert all-to-all, equal on every rail."""
    grid = np.arange(shape.nodes).reshape(shape.stages, shape.replicas)
    found = [Pairs(grid.ravel(), np.roll(grid, -1, axis=1).ravel(), Traffic.RING)]
    if shape.trees:
        for child, parent in double_tree(shape.replicas):
            low, high = grid[:, child].ravel(), grid[:, parent].ravel()
            found += [Pairs(low, high, Traffic.TREE), Pairs(high, low, Traffic.TREE)]
    if shape.stages > 1:
        before, after = grid[:-1].ravel(), grid[1:].ravel()
        found += [Pairs(before, after, Traffic.SMALL), Pairs(after, before, Traffic.SMALL)]
    if shape.experts:
        found.append(_all_to_all(grid.reshape(-1, shape.experts)))
    return found


def double_tree(size: int) -> list[tuple[Ints, Ints]]:
    """Return (children, parents) of both trees over 0..size-1 (Sanders, Speck and Traeff 2009, in NCCL's form).

    An in-order tree, and its mirror (even sizes) or its shift by one (odd sizes): no rank is an inner node of both.
    """
    child, parent = _tree(size)
    if size % 2 == 0:
        return [(child, parent), (size - 1 - child, size - 1 - parent)]
    return [(child, parent), ((child + 1) % size, (parent + 1) % size)]


def _tree(size: int) -> tuple[Ints, Ints]:
    """Build the tree in order: the parent of r differs from r around its lowest set bit; 0 is the root."""
    rank = np.arange(1, size)
    low = rank & -rank
    parent = (rank ^ low) | (low << 1)
    return rank, np.where(parent < size, parent, rank ^ low)


def _all_to_all(groups: Ints) -> Pairs:
    size = groups.shape[1]
    first, second = (axis.ravel() for axis in np.nonzero(~np.eye(size, dtype=bool)))
    return Pairs(groups[:, first].ravel(), groups[:, second].ravel(), Traffic.SMALL)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The fabric, the paths of acknowledgements and probes, and the part that the detector knows: `known`."""

    shape: Shape
    fabric: Fabric
    ack_up: Ints  # uplinks of an edge's acknowledgements; NOWHERE within a leaf
    ack_down: Ints
    probe_up: Ints  # [port, edge]: uplinks of the probes of the edge's pair of NICs
    probe_down: Ints
    known: Fabric

    @property
    def groups(self) -> tuple[Ints, Ints]:
        node = np.arange(self.shape.nodes)
        return node // self.shape.replicas, node % self.shape.replicas


def build(shape: Shape, *, seed: int, paths_known: bool = True, probe_ports: int = 0) -> Cluster:
    """Build the fabric of a job.  Equal seeds scatter its nodes and hash its flows equally.

    `probe_ports`: source ports of probes, in turn; 0: no probes.
    """
    rails = np.arange(shape.per_node)
    node = np.repeat(np.arange(shape.nodes), shape.per_node)
    slot = _slots(shape, np.random.default_rng([seed, 1]))
    leaf = (slot[node] // shape.leaf_nodes) * shape.per_node + np.tile(rails, shape.nodes)
    runs = pairs(shape)
    ends = [
        (run.source[:, None] * shape.per_node + rails, run.target[:, None] * shape.per_node + rails) for run in runs
    ]
    source = np.concatenate([begin.ravel() for begin, _ in ends])
    target = np.concatenate([end.ravel() for _, end in ends])
    traffic = np.concatenate(
        [np.full(begin.size, int(run.traffic)) for run, (begin, _) in zip(runs, ends, strict=True)]
    )
    up, down = _path(shape, leaf, source, target, salt=seed * 7 + traffic)
    ack_up, ack_down = _path(shape, leaf, target, source, salt=seed * 7 + 3 + traffic)
    salts = [np.full(source.size, seed * 7 + 6 + 8 * port) for port in range(probe_ports)]
    probes = np.array([_path(shape, leaf, source, target, salt=salt) for salt in salts], dtype=np.int64)
    probes = probes.reshape(probe_ports, 2, source.size)
    fabric = Fabric(source=source, target=target, traffic=traffic, up=up, down=down, node=node, leaf=leaf)
    nowhere = np.full(len(fabric), NOWHERE)
    known = fabric if paths_known else replace(fabric, up=nowhere, down=nowhere)
    return Cluster(
        shape=shape,
        fabric=fabric,
        ack_up=ack_up,
        ack_down=ack_down,
        probe_up=probes[:, 0],
        probe_down=probes[:, 1],
        known=known,
    )


def _slots(shape: Shape, rng: np.random.Generator) -> Ints:
    """Return the slot of each node: in order, except for scattered nodes."""
    slot = np.arange(shape.nodes)
    moved = rng.choice(shape.nodes, size=round(shape.scattered * shape.nodes), replace=False)
    slot[moved] = slot[rng.permutation(moved)]
    return slot


def _path(shape: Shape, leaf: Ints, source: Ints, target: Ints, *, salt: Ints) -> tuple[Ints, Ints]:
    """Return the uplinks up and down of each flow: first the numbers of the cables up, then of the same cables down."""
    spine = (_hashed(source, target, salt) % np.uint64(shape.spines)).astype(np.int64)
    away = leaf[source] != leaf[target]
    up = leaf[source] * shape.spines + spine
    down = (shape.leaves + leaf[target]) * shape.spines + spine
    return np.where(away, up, NOWHERE), np.where(away, down, NOWHERE)


def _hashed(source: Ints, target: Ints, salt: Ints) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood 2014) to both ends."""
    with np.errstate(over="ignore"):
        mixed = (source.astype(np.uint64) << np.uint64(32)) ^ target.astype(np.uint64)
        mixed = mixed + _GOLDEN * (salt.astype(np.uint64) + np.uint64(1))
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
