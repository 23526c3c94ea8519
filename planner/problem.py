"""The mix problem in plain numbers: what `planner.solve.ilp` turns into variables and constraints.

Symbols and units are those of docs/formulation.md, section 1.  Indices are positions: an option names its supply, a
route its load and its options, by where they stand in the problem's tuples.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import fsum

from planner.objectives import COST, Objective

MIN_BUSY_REPLICAS = 1e-6  # well above the solvers' tolerances, well below anything that costs


class LimitKind(StrEnum):
    """What a limit on the whole mix is about."""

    QUOTA = "quota"  # GPUs of some offers together
    POWER = "power"  # W of the replicas in one power domain
    SPOT = "spot"  # GPUs on the spot market, as a share of all
    BUDGET = "budget"  # $/h


@dataclass(frozen=True, slots=True)
class Load:
    """A workload `w`: the rate of each of its buckets, the fewest replicas it accepts and how full they may be."""

    name: str
    rate_rps: tuple[float, ...]
    min_replicas: int = 0
    utilisation: float = 1.0  # the share of a replica's highest rate that this workload may use


@dataclass(frozen=True, slots=True)
class Supply:
    """Something hired in whole units, `f`: instances of an offer, or replicas of an option given outright."""

    name: str
    price_usd_per_h: float  # of one unit
    slots: int = 1  # GPUs in one unit
    available: int | None = None  # units, None where nothing limits them
    carbon_g_per_kwh: float = 0.0  # of the electricity where it stands


@dataclass(frozen=True, slots=True)
class ReplicaOption:
    """One way to run a replica, `o`."""

    name: str
    gpu: str
    supply: int
    slots: int = 1  # GPUs one replica takes out of its supply's units; divides the unit's slots
    uptime: float = 1.0  # the share of the time that a replica is there: less than 1 where it may be taken back
    idle_w: float = 0.0
    busy_w: float = 0.0  # at full load
    held: int = 0  # replicas that run now


@dataclass(frozen=True, slots=True)
class Leg:
    """What a route asks of one option: the highest rate a replica holds inside the SLO, 0 where it cannot serve."""

    option: int
    max_rps: tuple[float, ...]
    worst_rps: tuple[float, ...] | None = None  # the same if the profile errs to the bad side; None: not known to err


@dataclass(frozen=True, slots=True)
class Route:
    """A way for a workload's requests, `r`: through one option, or through prefill and then decode replicas."""

    name: str
    load: int
    legs: tuple[Leg, ...]

    def serves(self, bucket: int) -> bool:
        """Whether every leg can carry such requests."""
        return all(leg.max_rps[bucket] > 0 for leg in self.legs)


@dataclass(frozen=True, slots=True)
class Limit:
    """A cap on the whole mix: `Σ_f units[f]·m_f + Σ_o replicas[o]·n_o <= at_most`."""

    name: str
    kind: LimitKind
    at_most: float
    units: Mapping[int, float] = field(default_factory=dict)
    replicas: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """What moving away from the replicas that run now may and does cost."""

    max_started: int | None = None
    max_stopped: int | None = None
    start_usd_per_h: float = 0.0  # per replica started, spread over the time the plan is meant to last
    stop_usd_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """A failure that the rest must carry: replicas lost per option, at most those that run; None: all of them."""

    name: str
    lost: Mapping[int, int | None]

    def survivors(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """The counts that are left."""
        return tuple(
            n if o not in self.lost else 0 if (lost := self.lost[o]) is None else max(0, n - lost)
            for o, n in enumerate(replicas)
        )


@dataclass(frozen=True, slots=True)
class MixProblem:
    """Everything the ILP needs to know."""

    loads: tuple[Load, ...]
    supplies: tuple[Supply, ...]
    options: tuple[ReplicaOption, ...]
    routes: tuple[Route, ...]
    objective: Objective = COST
    limits: tuple[Limit, ...] = ()
    change: Change = Change()
    losses: tuple[Loss, ...] = ()
    own_nodes: bool = False  # no unit holds replicas of two options, so that its loss takes replicas of one only
    erring_buckets: int = 0  # per option, how many buckets may have their worst rate at once (Bertsimas and Sim, 2004)

    def buckets(self) -> Iterator[tuple[int, int]]:
        """(load, bucket) of every bucket that has demand."""
        for w, load in enumerate(self.loads):
            for b, rate_rps in enumerate(load.rate_rps):
                if rate_rps > 0:
                    yield w, b

    def busy_per_share(self, route: Route, leg: Leg, bucket: int) -> float:
        """`a`: busy replicas of a leg whose route takes the whole bucket; never so few that a solver sees nothing."""
        return max(MIN_BUSY_REPLICAS, self.loads[route.load].rate_rps[bucket] / leg.max_rps[bucket])

    def replicas_per_share(self, route: Route, leg: Leg, bucket: int) -> float:
        """`a` over the utilisation: replicas that the workload's utilisation asks for then."""
        return self.busy_per_share(route, leg, bucket) / self.loads[route.load].utilisation

    def excess_per_share(self, route: Route, leg: Leg, bucket: int) -> float:
        """`d`: how many more it would be at the worst rate."""
        if leg.worst_rps is None or leg.worst_rps[bucket] >= leg.max_rps[bucket]:
            return 0.0
        ratio = leg.max_rps[bucket] / max(leg.worst_rps[bucket], 1e-3 * leg.max_rps[bucket])
        return self.replicas_per_share(route, leg, bucket) * (ratio - 1)

    def options_of(self, load: int) -> tuple[int, ...]:
        """The options that answer a workload's requests: the last leg of each of its routes."""
        return tuple(dict.fromkeys(route.legs[-1].option for route in self.routes if route.load == load))

    def cost_usd_per_h(self, units: tuple[int, ...]) -> float:
        """What the hired units cost."""
        costs = (supply.price_usd_per_h * count for supply, count in zip(self.supplies, units, strict=True))
        return round(fsum(costs), 9)  # so that prices in cents add up to cents

    def unit_weight(self, supply: int) -> float:
        """The objective's weight of a unit."""
        return self.objective.price_weight * self.supplies[supply].price_usd_per_h

    def replica_weight(self, option: int) -> float:
        """The objective's weight of an idle replica."""
        return self._power_weight(option) * self.options[option].idle_w

    def busy_weight(self, option: int) -> float:
        """The objective's additional weight of a busy replica."""
        replica = self.options[option]
        return self._power_weight(option) * max(0.0, replica.busy_w - replica.idle_w)

    def _power_weight(self, option: int) -> float:
        return self.objective.weight_of_w(self.supplies[self.options[option].supply].carbon_g_per_kwh)
