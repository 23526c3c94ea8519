"""The mix problem in numbers, from which `planner.solve.ilp` builds variables and constraints.

Symbols and units are those of docs/explanation/planner/formulation.md, section 1.  Options, supplies, loads and routes
refer to one another by their index in the problem's tuples.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, fsum

from planner.objectives import COST, Footprint, Objective

MIN_BUSY_REPLICAS = 1e-6  # well above the solvers' tolerances, well below any relevant load


class LimitKind(StrEnum):
    QUOTA = "quota"  # GPUs of some offers together
    POWER = "power"  # W of the replicas in one power domain
    SPOT = "spot"  # GPUs on the spot market, as a share of all
    BUDGET = "budget"  # $/h


@dataclass(frozen=True, slots=True)
class Load:
    """A workload `w`: the rate of each bucket, the minimum of replicas and the usable share of their rate."""

    name: str
    rate_rps: tuple[float, ...]
    min_replicas: int = 0
    utilisation: float = 1.0  # the share of a replica's highest rate that this workload may use


@dataclass(frozen=True, slots=True)
class Supply:
    """Units to hire, `f`: instances of an offer, or replicas of a given option."""

    name: str
    price_usd_per_h: float  # of one unit
    slots: int = 1  # GPUs in one unit
    available: int | None = None  # units; None: no limit
    footprint: Footprint = field(default_factory=Footprint)


@dataclass(frozen=True, slots=True)
class ReplicaOption:
    """One way to run a replica, `o`."""

    name: str
    gpu: str
    supply: int
    slots: int = 1  # GPUs of one replica; divides the slots of its supply
    uptime: float = 1.0  # the share of the time that a replica is available: less than 1 on the spot market
    idle_w: float = 0.0
    busy_w: float = 0.0  # at full load
    held: int = 0  # replicas that run now


@dataclass(frozen=True, slots=True)
class Leg:
    """The part of a route on one option: the highest rate of a replica inside the SLO, 0 if it cannot serve."""

    option: int
    max_rps: tuple[float, ...]
    worst_rps: tuple[float, ...] | None = None  # at the low end of the profile's interval; None: no known error


@dataclass(frozen=True, slots=True)
class Route:
    """A way to serve a workload's requests, `r`: one option, or prefill replicas followed by decode replicas."""

    name: str
    load: int
    legs: tuple[Leg, ...]

    def serves(self, bucket: int) -> bool:
        return all(leg.max_rps[bucket] > 0 for leg in self.legs)

    def runs(self, replicas: Sequence[int]) -> bool:
        return all(replicas[leg.option] > 0 for leg in self.legs)


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
    """Limits and costs of starts and stops."""

    max_started: int | None = None
    max_stopped: int | None = None
    start_usd_per_h: float = 0.0  # per replica started, spread over the time that the plan lasts
    stop_usd_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """A failure to survive: replicas lost per option, at most those that run; None: all of them."""

    name: str
    lost: Mapping[int, int | None]

    def survivors(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            n if o not in self.lost else 0 if (lost := self.lost[o]) is None else max(0, n - lost)
            for o, n in enumerate(replicas)
        )


@dataclass(frozen=True, slots=True)
class MixProblem:
    """The input of every solver."""

    loads: tuple[Load, ...]
    supplies: tuple[Supply, ...]
    options: tuple[ReplicaOption, ...]
    routes: tuple[Route, ...]
    objective: Objective = COST
    limits: tuple[Limit, ...] = ()
    change: Change = Change()
    losses: tuple[Loss, ...] = ()
    own_nodes: bool = False  # no unit holds replicas of two options, so that its loss affects one option
    erring_buckets: int = 0  # per option, how many buckets may have their worst rate at once (Bertsimas and Sim, 2004)

    def buckets(self) -> Iterator[tuple[int, int]]:
        """(load, bucket) of every bucket that has demand."""
        for w, load in enumerate(self.loads):
            for b, rate_rps in enumerate(load.rate_rps):
                if rate_rps > 0:
                    yield w, b

    def busy_per_share(self, route: Route, leg: Leg, bucket: int) -> float:
        """`a` at full utilisation: busy replicas if the route serves the whole bucket; above the solver's tolerance."""
        return max(MIN_BUSY_REPLICAS, self.loads[route.load].rate_rps[bucket] / leg.max_rps[bucket])

    def replicas_per_share(self, route: Route, leg: Leg, bucket: int) -> float:
        """`a`: replicas that the bucket needs at the workload's utilisation."""
        return self.busy_per_share(route, leg, bucket) / self.loads[route.load].utilisation

    def excess_per_share(self, route: Route, leg: Leg, bucket: int) -> float:
        """`d`: additional replicas at the worst rate."""
        if leg.worst_rps is None or leg.worst_rps[bucket] >= leg.max_rps[bucket]:
            return 0.0
        ratio = leg.max_rps[bucket] / max(leg.worst_rps[bucket], 1e-3 * leg.max_rps[bucket])
        return self.replicas_per_share(route, leg, bucket) * (ratio - 1)

    def options_of(self, load: int) -> tuple[int, ...]:
        """The last option of each of a workload's routes."""
        return tuple(dict.fromkeys(route.legs[-1].option for route in self.routes if route.load == load))

    def units_of(self, replicas: Sequence[int], *, own_nodes: bool | None = None) -> tuple[int, ...]:
        """The fewest units for these replicas, with or without units that several options share."""
        units, gpus = [0] * len(self.supplies), [0] * len(self.supplies)
        for option, count in zip(self.options, replicas, strict=True):
            if self.own_nodes if own_nodes is None else own_nodes:
                units[option.supply] += ceil(option.slots * count / self.supplies[option.supply].slots)
            else:
                gpus[option.supply] += option.slots * count
        return tuple(n + ceil(used / f.slots) for n, used, f in zip(units, gpus, self.supplies, strict=True))

    def cost_usd_per_h(self, units: tuple[int, ...]) -> float:
        costs = (supply.price_usd_per_h * count for supply, count in zip(self.supplies, units, strict=True))
        return round(fsum(costs), 9)  # so that prices in cents sum to cents

    def unit_weight(self, supply: int) -> float:
        return self.objective.price_weight * self.supplies[supply].price_usd_per_h

    def replica_weight(self, option: int) -> float:
        return self._power_weight(option) * self.options[option].idle_w

    def busy_weight(self, option: int) -> float:
        replica = self.options[option]
        return self._power_weight(option) * max(0.0, replica.busy_w - replica.idle_w)

    def _power_weight(self, option: int) -> float:
        return self.objective.weight_of_w(self.supplies[self.options[option].supply].footprint)
