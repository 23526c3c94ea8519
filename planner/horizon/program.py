"""P7: counts per period, without shares; docs/explanation/planner/horizon.md has every row under its name.

`service` rows, added on demand, decide which counts serve a period's demand.  `LoadedHorizon` keeps P7 in HiGHS.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pulp

from fleet.solvers import Limits, Outcome
from planner.horizon.plan import Counts
from planner.horizon.problem import HorizonProblem
from planner.solve.highs import LoadedProgram
from planner.solve.ilp.model import Rows, Variable
from planner.solve.service_cuts import Cut

ROUNDING = 1e-6
MIN_RUN_S = 0.1  # the shortest run
NEAR_GAP = 2e-3  # of a neighbourhood: its bound does not hold for the whole

Key = tuple[int, int]  # period, and option or supply
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class HorizonModel(Rows):
    """P7 and its variables."""

    problem: HorizonProblem
    program: pulp.LpProblem = field(default_factory=lambda: pulp.LpProblem("horizon", pulp.LpMinimize))
    held: dict[Key, Variable] = field(default_factory=dict)  # z[t,o]
    ready: dict[Key, Variable] = field(default_factory=dict)  # n[t,o]: the same variable without a warm-up
    units: dict[Key, Variable] = field(default_factory=dict)  # m[t,f]: R[f] itself where units are reserved
    committed: dict[int, Variable] = field(default_factory=dict)  # R[f]
    started: dict[Key, Variable] = field(default_factory=dict)  # u[t,o], only where switching costs
    stopped: dict[Key, Variable] = field(default_factory=dict)  # v[t,o], likewise


def cheapest_path(problem: HorizonProblem) -> HorizonModel:
    """P7: the cheapest counts over the periods, before any `service` row."""
    model = with_paths(problem)
    add_path(model)
    add_ready(model)
    add_packing(model)
    add_stock(model)
    add_limit(model)
    add_min_replicas(model)
    add_reach(model)
    model.optimise(cost_terms(model))
    return model


def with_paths(problem: HorizonProblem) -> HorizonModel:
    model = HorizonModel(problem)
    for f in range(len(problem.base.supplies)):
        if problem.reserved(f):
            model.committed[f] = model.add_variable(f"committed_{f}", integer=True)
    for t in range(problem.periods):
        for f in range(len(problem.base.supplies)):
            reserved = model.committed.get(f)
            model.units[t, f] = model.add_variable(f"units_{t}_{f}", integer=True) if reserved is None else reserved
        for o, warmup in enumerate(problem.warmup_periods):
            held = model.held[t, o] = model.add_variable(f"held_{t}_{o}", integer=True)
            model.ready[t, o] = model.add_variable(f"ready_{t}_{o}") if warmup else held
    return model


def add_path(model: HorizonModel) -> None:
    """path[t,o]: an increase of the running replicas is a start, a decrease a stop."""
    problem = model.problem
    if not problem.start_usd and not problem.stop_usd:
        return
    for (t, o), held in model.held.items():
        model.started[t, o] = model.add_variable(f"started_{t}_{o}")
        model.stopped[t, o] = model.add_variable(f"stopped_{t}_{o}")
        changes = [(held, 1.0), (model.started[t, o], -1.0), (model.stopped[t, o], 1.0)]
        before = problem.before(t)
        if before is None:
            model.equal(f"path_{t}_{o}", changes, problem.initial[o] if problem.initial else 0)
        elif before != t:
            model.equal(f"path_{t}_{o}", [*changes, (model.held[before, o], -1.0)], 0)


def add_ready(model: HorizonModel) -> None:
    """ready[t,s,o]: a replica serves in `t` only if it also runs in each period `s` of its warm-up."""
    problem = model.problem
    for (t, o), ready in model.ready.items():
        periods, from_start = problem.window(t, o)
        if not problem.warmup_periods[o]:
            continue
        for s in periods:
            model.at_most(f"ready_{t}_{s}_{o}", [(ready, 1.0), (model.held[s, o], -1.0)], 0)
        if from_start and problem.initial is not None:
            model.at_most(f"ready_from_start_{t}_{o}", [(ready, 1.0)], problem.initial[o])


def add_packing(model: HorizonModel) -> None:
    """packing[t,f]: replicas run on GPUs of the units hired or reserved, warm or not."""
    options, supplies = model.problem.base.options, model.problem.base.supplies
    for (t, f), units in model.units.items():
        taken = [(model.held[t, o], option.slots) for o, option in enumerate(options) if option.supply == f]
        if taken:
            model.at_most(f"packing_{t}_{f}", [*taken, (units, -supplies[f].slots)], 0)


def add_stock(model: HorizonModel) -> None:
    """stock[t,f]: no more units than are available."""
    for (t, f), units in model.units.items():
        if (available := model.problem.available(t, f)) is not None:
            model.at_most(f"stock_{t}_{f}", [(units, 1.0)], available)


def add_limit(model: HorizonModel) -> None:
    """limit[t,l]: quotas, power domains, the spot share and the budget, in every period."""
    for t in range(model.problem.periods):
        for position, limit in enumerate(model.problem.limits_of(t)):
            terms = [(model.units[t, f], weight) for f, weight in limit.units.items()]
            terms += [(model.held[t, o], weight) for o, weight in limit.replicas.items()]
            if terms:
                scale = max(1.0, *(abs(weight) for _, weight in terms))
                scaled = [(x, weight / scale) for x, weight in terms]
                model.at_most(f"limit_{t}_{position}", scaled, limit.at_most / scale)


def add_min_replicas(model: HorizonModel) -> None:
    """min_replicas[t,w]: a workload always has its minimum number of replicas."""
    base = model.problem.base
    for t in range(model.problem.periods):
        for w, load in enumerate(base.loads):
            if load.min_replicas:
                counts = [(model.ready[t, o], -1.0) for o in base.options_of(w)]
                model.at_most(f"min_replicas_{t}_{w}", counts, -load.min_replicas)


def add_reach(model: HorizonModel) -> None:
    """reach[t,k]: of the options that can serve a bucket at all, one runs whenever the bucket has demand."""
    reaches = _reaches(model.problem)
    for t, rates in enumerate(model.problem.rates_rps):
        needed = {options for (w, b), sets in reaches.items() if rates[w][b] > 0 for options in sets}
        minimal = [options for options in needed if not any(other < options for other in needed)]
        for k, options in enumerate(sorted(map(sorted, minimal))):
            model.at_most(f"reach_{t}_{k}", [(model.ready[t, o], -1.0) for o in options], -1)


def add_service(model: HorizonModel, *, period: int, cut: int, weights: Sequence[float], need: float) -> str:
    """service[t,k]: at the prices of cut `k`, the replicas' time is worth at least the period's demand."""
    name = f"service_{period}_{cut}"
    model.at_most(name, [(model.ready[period, o], -weight) for o, weight in enumerate(weights) if weight], -need)
    return name


def cost_terms(model: HorizonModel) -> list[tuple[Variable, float]]:
    """$ over the whole horizon."""
    problem, supplies = model.problem, model.problem.base.supplies
    terms = [(r, supplies[f].price_usd_per_h * problem.hours) for f, r in model.committed.items()]
    for (_, f), units in model.units.items():
        if f not in model.committed:
            terms.append((units, supplies[f].price_usd_per_h * problem.period_h))
    terms += [(u, problem.start_usd) for u in model.started.values()]
    return [*terms, *((v, problem.stop_usd) for v in model.stopped.values())]


def _reaches(problem: HorizonProblem) -> dict[Key, list[frozenset[int]]]:
    """Per load and bucket, for each leg of a route the options that can serve it."""
    reaches: dict[Key, list[frozenset[int]]] = {}
    for w, load in enumerate(problem.base.loads):
        for b in range(len(load.rate_rps)):
            ways = [route.legs for route in problem.base.routes if route.load == w and route.serves(b)]
            longest = max(map(len, ways), default=0)
            reaches[w, b] = [frozenset(legs[min(leg, len(legs) - 1)].option for legs in ways) for leg in range(longest)]
    return reaches


class LoadedHorizon(LoadedProgram):
    """P7 of one horizon problem."""

    def __init__(self, model: HorizonModel, *, seed: int) -> None:
        super().__init__(model.program, seed=seed)
        self.model = model
        problem = model.problem
        self._shape = problem.periods, len(problem.base.options)
        self._keys = [(t, o) for t in range(self._shape[0]) for o in range(self._shape[1])]
        self._held = np.array([model.held[key].index for key in self._keys], dtype=np.int32)
        self._ready = np.array([model.ready[key].index for key in self._keys], dtype=np.int32)
        self._active: set[tuple[int, int]] = set()

    @property
    def ready(self) -> Floats:
        return self.values[self._ready].reshape(self._shape)

    @property
    def held(self) -> Counts:
        return tuple(tuple(int(n) for n in row) for row in np.rint(self.values[self._held]).reshape(self._shape))

    @property
    def units(self) -> Counts:
        """Whole units of the last solution's replicas, and units hired in addition to satisfy a limit on a share."""
        problem = self.model.problem
        needed = tuple(problem.base.units_of(row) for row in self.held)
        if not any(
            weight < 0 for t in range(self._shape[0]) for x in problem.limits_of(t) for weight in x.units.values()
        ):
            return needed  # free units cost nothing, so the program may have more of them than it needs
        hired = {
            key: 0 if key[1] in self.model.committed else round(self.values[m.index])
            for key, m in self.model.units.items()
        }
        return tuple(tuple(max(count, hired[t, f]) for f, count in enumerate(row)) for t, row in enumerate(needed))

    @property
    def committed(self) -> dict[int, int]:
        return {f: round(self.values[r.index]) for f, r in self.model.committed.items()}

    def add_service(self, *, period: int, position: int, cut: Cut, need: float) -> bool:
        """Add a `service` row, once per period and cut; return whether it is new."""
        if (period, position) in self._active:
            return False
        self._active.add((period, position))
        add_service(self.model, period=period, cut=position, weights=cut.weights.tolist(), need=need)
        ready = self.model.ready
        self.add_row([(ready[period, int(o)], cut.weights[o]) for o in np.flatnonzero(cut.weights)], need)
        return True

    def complete(self, held: Counts, *, at_least: bool, time_limit_s: float) -> Outcome:
        low = np.array(held, dtype=float).ravel()
        return self._between(low, None if at_least else low, time_limit_s)

    @property
    def running_values(self) -> Floats:
        """Replicas that run, in the last solution, whole or not: period after period."""
        return self.values[self._held]

    def near_relaxed(self, relaxed: Floats, *, time_limit_s: float) -> Outcome:
        """The cheapest solution that keeps every count which the relaxation has whole.

        Most of those are zeros, so the search covers the options that the relaxation uses (relaxation enforced
        neighbourhood search: Berthold 2014).
        """
        whole = np.abs(relaxed - np.rint(relaxed)) < ROUNDING
        low = np.where(whole, np.rint(relaxed), np.floor(relaxed))
        return self._between(low, np.where(whole, low, low + 1), time_limit_s)

    def rounded_up(self, relaxed: Floats, *, time_limit_s: float) -> Outcome:
        """The cheapest solution with each count of the relaxation rounded up: never short, but often expensive."""
        high = np.ceil(relaxed - ROUNDING)
        return self._between(high, high, time_limit_s)

    def _between(self, low: Floats, high: Floats | None, time_limit_s: float) -> Outcome:
        variables = [self.model.held[key] for key in self._keys]
        return self.between(variables, low, high, run_limits(time_limit_s, relative_gap=NEAR_GAP))


def run_limits(time_limit_s: float, *, relative_gap: float) -> Limits:
    return Limits(time_limit_s=max(MIN_RUN_S, time_limit_s), relative_gap=relative_gap)
