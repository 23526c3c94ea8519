"""The fabric of a job: every edge, the placement of its NICs, and its path by hash.

A flow takes one of the spines by a hash of its two ends (ECMP).  Acknowledgements are separate flows with their own
hash, and so are probes, which leave from their own source ports.  The detector can know less: `known` has no paths
where the operator cannot give them.
"""

from dataclasses import dataclass, replace

import numpy as np

from faults.fabric import NOWHERE, Fabric, Ints
from faults.simulator.groups import pairs
from faults.simulator.shape import Shape

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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
        """Return the stage and the replica of each node."""
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
