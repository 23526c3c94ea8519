"""The mix problem in plain numbers: what `planner.ilp` turns into variables and constraints.

Symbols and units are those of docs/formulation.md, section 1.  Indices are positions: an option names its load and its
supply by where they stand in the problem's tuples.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum

LEAST_BUSY_REPLICAS = 1e-6  # well above the solvers' tolerances, well below anything that costs


@dataclass(frozen=True, slots=True)
class Load:
    """A workload `w`: the rate of each of its buckets and the fewest replicas it accepts."""

    name: str
    rate_rps: tuple[float, ...]
    min_replicas: int = 0


@dataclass(frozen=True, slots=True)
class Supply:
    """Something hired in whole units, `f`: instances of an offer, or replicas of an option given outright."""

    name: str
    price_usd_per_h: float  # of one unit
    slots: int = 1  # GPUs in one unit
    available: int | None = None  # units, None where nothing limits them


@dataclass(frozen=True, slots=True)
class ReplicaOption:
    """One way to run a replica, `o`, and the highest rate it holds inside the SLO per bucket (0 = cannot serve it)."""

    name: str
    gpu: str
    load: int
    supply: int
    max_rps: tuple[float, ...]
    slots: int = 1  # GPUs one replica takes out of its supply's units; divides the unit's slots


@dataclass(frozen=True, slots=True)
class MixProblem:
    """Everything the ILP needs to know."""

    loads: tuple[Load, ...]
    supplies: tuple[Supply, ...]
    options: tuple[ReplicaOption, ...]
    utilisation: float = 1.0  # the share of a replica's highest rate that a plan may use

    def buckets(self) -> Iterator[tuple[int, int]]:
        """(load, bucket) of every bucket that has demand."""
        for w, load in enumerate(self.loads):
            for b, rate_rps in enumerate(load.rate_rps):
                if rate_rps > 0:
                    yield w, b

    def replicas_per_share(self, option: int, bucket: int) -> float:
        """`a`: busy replicas of an option when it takes the whole bucket; never so few that a solver sees nothing."""
        replica = self.options[option]
        return max(LEAST_BUSY_REPLICAS, self.loads[replica.load].rate_rps[bucket] / replica.max_rps[bucket])

    def cost_usd_per_h(self, units: tuple[int, ...]) -> float:
        """What the hired units cost."""
        costs = (supply.price_usd_per_h * count for supply, count in zip(self.supplies, units, strict=True))
        return round(fsum(costs), 9)  # so that prices in cents add up to cents
