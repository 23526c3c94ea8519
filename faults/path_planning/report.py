"""The load of every port and cable, planned and hashed, and the speed of the slowest ring with each.

A flow is as fast as its slowest connection, because its data is divided evenly.  A connection's speed is the inverse of
the maximum utilisation on its path where that is above 1.  A ring is as fast as its slowest flow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.path_planning.ecmp import FIRST_PORT, PORTS, Fabric, Ints, columns, planned_columns
from faults.path_planning.plan import Plan, first_count
from faults.path_planning.traffic import Traffic

Floats = NDArray[np.float64]

TIERS = ("port out", "port in", "leaf up", "leaf down", "spine up", "spine down")


@dataclass(frozen=True, slots=True)
class FabricLoad:
    """The load of one assignment of a job's traffic."""

    greatest: float  # utilisation of any port or cable
    by_tier: dict[str, float]
    over: int  # ports and cables above their capacity
    slowest_ring: float  # share of its demand
    mean_ring: float


@dataclass(frozen=True, slots=True)
class Hashed:
    """Utilisations and ring speeds over many random source ports."""

    draws: int
    mean: float
    p50: float
    p99: float
    worst: float
    slowest_ring_mean: float
    slowest_ring_worst: float


class Meter:
    """Capacities of a traffic's ports and cables in one row: directed cable links, then ports out, then ports in."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        clos = traffic.clos
        self._first = np.cumsum([0, *(len(nic.leaves) for nic in traffic.nics)])
        ports = np.array([nic.port_gb_per_s for nic in traffic.nics for _ in nic.leaves])
        self._wires = 2 * len(clos.wires)
        cables = np.repeat(np.array([wire.gb_per_s for wire in clos.wires], dtype=np.float64), 2)
        self._capacity = np.concatenate([cables, ports, ports])
        tier = np.array([clos.tiers[wire.lower].level for wire in clos.wires], dtype=np.int64)
        kinds = 2 + 2 * np.repeat(tier, 2) + np.arange(self._wires) % 2
        self._kind = np.concatenate([kinds, np.zeros(len(ports), np.int64), np.ones(len(ports), np.int64)])

    def load(self, flows: Sequence[int], gb_per_s: Floats, out: Ints, into: Ints, links: Ints) -> FabricLoad:
        """Return the load of connections, each given by its flow, size, ports and links."""
        sources, targets = columns(self.traffic, flows)
        used = np.column_stack(
            [
                links,
                self._wires + self._first[sources] + out,
                self._wires + self._first[-1] + self._first[targets] + into,
            ]
        )
        there = used >= 0
        sizes = np.repeat(gb_per_s[:, None], used.shape[1], axis=1)
        demand = np.bincount(used[there], weights=sizes[there], minlength=len(self._capacity))
        share = demand / self._capacity
        worst = np.where(there, share[used], 0.0).max(axis=1)
        ring = np.ones(len(self.traffic.rings))
        np.minimum.at(ring, [self.traffic.flows[flow].ring for flow in flows], 1 / np.maximum(worst, 1.0))
        by_tier = {name: float(share[self._kind == kind].max(initial=0.0)) for kind, name in enumerate(TIERS)}
        return FabricLoad(
            float(share.max(initial=0.0)), by_tier, int((share > 1 + 1e-9).sum()), float(ring.min()), float(ring.mean())
        )


def planned(plan: Plan) -> FabricLoad:
    parts, sizes = plan.parts, np.array([part.gb_per_s for part in plan.parts])
    columns_of = planned_columns(plan.traffic, plan.paths, parts)
    return Meter(plan.traffic).load([part.flow for part in parts], sizes, *columns_of)


def hashed(traffic: Traffic, *, draws: int, seed: int, connections: int | None = None) -> Hashed:
    """Return the load of the same traffic with the fabric's hash, with new random source ports in each draw."""
    counts = [connections or first_count(traffic, flow) for flow in range(len(traffic.flows))]
    flows = np.repeat(np.arange(len(counts)), counts).tolist()
    sizes = np.array([traffic.flows[flow].gb_per_s / counts[flow] for flow in flows])
    fabric, meter, rng = Fabric(traffic), Meter(traffic), np.random.default_rng(seed)
    sources, targets = columns(traffic, flows)
    loads = [
        meter.load(
            flows, sizes, *fabric.sent(sources, targets, rng.integers(FIRST_PORT, FIRST_PORT + PORTS, len(flows)))
        )
        for _ in range(draws)
    ]
    greatest, slowest = np.array([load.greatest for load in loads]), np.array([load.slowest_ring for load in loads])
    return Hashed(
        draws,
        float(greatest.mean()),
        float(np.percentile(greatest, 50)),
        float(np.percentile(greatest, 99)),
        float(greatest.max()),
        float(slowest.mean()),
        float(slowest.min()),
    )
