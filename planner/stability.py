"""When to move to a new plan, window by window: at once with too few replicas, slowly with too many.

Solving again for each window's rate would let noise flip whole replicas.  Three rules keep the fleet stable:

- The planned demand is a forecast, or a high quantile of the last windows' rates with their mean mix of sizes, times a
  margin.
- The running replicas stay while they serve the forecast, or the window's demand, within its utilisation and cost at
  most `band` more than the proven lower bound of any mix for the planned demand.
- The plan shrinks only after a saving has lasted `patience` windows; it grows at once.

`decide` is a pure step: it gets the state and returns the decision with the next state, and reads no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum

from fleet.solvers import Limits, Solver
from planner.horizon.feasibility import Serving
from planner.problem import Load, MixProblem
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution

Rates = tuple[tuple[float, ...], ...]  # [load][bucket] in requests/s
Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StabilityPolicy:
    """How far the plan may lag behind the load.  The defaults suit noise of about 5 % on windows of minutes."""

    band: float = 0.05  # a cost above the bound by up to this share is not worth a move
    patience: int = 6  # windows in a row that a saving must last
    memory: int = 24  # windows of the demand forecast
    quantile: float = 0.9  # of those windows' rates
    margin: float = 0.05  # planned on top of the quantile or forecast

    def __post_init__(self) -> None:
        ranges = {
            "band": (self.band, 0, 10),
            "patience": (self.patience, 1, 100_000),
            "memory": (self.memory, 1, 100_000),
            "quantile": (self.quantile, 0, 1),
            "margin": (self.margin, 0, 10),
        }
        for name, (value, least, most) in ranges.items():
            if not least <= value <= most:
                raise ValueError(f"{name}: {value}, expected {least} to {most}")


@dataclass(frozen=True, slots=True)
class StabilityState:
    running: Counts  # replicas per option
    windows: tuple[Rates, ...] = ()  # the last windows' rates, the newest last
    saving_windows: int = 0  # windows in a row with a possible saving beyond the band


@dataclass(frozen=True, slots=True)
class Decision:
    running: Counts
    reason: str
    planned_rps: Rates
    solution: MixSolution | None  # of the planned demand; None without a solve
    state: StabilityState  # for the next window
    moved: bool


def decide(
    problem: MixProblem,
    *,
    state: StabilityState,
    observed_rps: Rates,
    policy: StabilityPolicy,
    solver: Solver,
    limits: Limits,
    serving: Serving | None = None,
    forecast_rps: Rates | None = None,
) -> Decision:
    """Keep the running replicas or move, given one window's rates.

    `forecast_rps` is the demand to serve until new replicas are ready.  `problem` has the options and limits;
    its rates and held replicas are replaced.  A `Serving` of it, reused from window to window, saves time and does not
    change the result.
    """
    serving = serving or Serving(problem)
    windows = (*state.windows, observed_rps)[-policy.memory :]
    now = replace(state, windows=windows)
    if forecast_rps is None:
        needed, planned = observed_rps, _planned(windows, policy)
    else:
        needed = forecast_rps
        planned = tuple(tuple(rate * (1 + policy.margin) for rate in load) for load in forecast_rps)
    if not serving(state.running, rates_rps=needed):
        return _grown(problem, now, needed, planned, solver=solver, limits=limits)
    solution = _solve(problem, now, planned, solver=solver, limits=limits)
    excess = _excess(problem, solution, state.running)
    if excess <= policy.band:
        reason = f"holds the load and costs at most {100 * excess:.1f} % more than any mix can"
        return _kept(replace(now, saving_windows=0), planned, solution, reason)
    saving_windows = state.saving_windows + 1
    if saving_windows < policy.patience:
        reason = f"a saving of {100 * excess:.1f} % has lasted {saving_windows} of {policy.patience} windows"
        return _kept(replace(now, saving_windows=saving_windows), planned, solution, reason)
    if solution.cost_usd_per_h is None or solution.cost_usd_per_h >= _cost_usd_per_h(problem, state.running):
        reason = "no cheaper mix was found within the limits"
        return _kept(replace(now, saving_windows=saving_windows), planned, solution, reason)
    reason = f"saves {100 * excess:.1f} %, for {saving_windows} windows in a row"
    return _moved(now, planned, solution, reason)


def _planned(windows: Sequence[Rates], policy: StabilityPolicy) -> Rates:
    """Per load the mean mix of sizes at a high quantile of the total, at least the newest window."""
    planned = []
    for load in zip(*windows, strict=True):
        totals = sorted(fsum(rates) for rates in load)
        high_rps = totals[max(0, ceil(policy.quantile * len(totals)) - 1)] * (1 + policy.margin)
        means = [fsum(rates) / len(load) for rates in zip(*load, strict=True)]
        mean_rps = fsum(means)
        scale = high_rps / mean_rps if mean_rps > 0 else 0.0
        planned.append(tuple(max(scale * mean, newest) for mean, newest in zip(means, load[-1], strict=True)))
    return tuple(planned)


def _grown(
    problem: MixProblem, state: StabilityState, needed: Rates, planned: Rates, *, solver: Solver, limits: Limits
) -> Decision:
    """Grow at once: for the planned demand, or for the needed one where limits forbid that."""
    solution = _solve(problem, state, planned, solver=solver, limits=limits)
    if solution.status.has_mix:
        return _moved(state, planned, solution, "the running replicas do not hold the load")
    bare = _solve(problem, state, needed, solver=solver, limits=limits)
    if bare.status.has_mix:
        return _moved(state, needed, bare, "the running replicas do not hold the load; no room for a margin")
    reason = "the running replicas do not hold the load, and no mix within the limits does"
    return _kept(state, planned, solution, reason)


def _solve(problem: MixProblem, state: StabilityState, rates: Rates, *, solver: Solver, limits: Limits) -> MixSolution:
    loads: tuple[Load, ...] = tuple(replace(load, rate_rps=row) for load, row in zip(problem.loads, rates, strict=True))
    options = tuple(replace(option, held=n) for option, n in zip(problem.options, state.running, strict=True))
    return solve_mix(replace(problem, loads=loads, options=options), solver=solver, limits=limits)


def _excess(problem: MixProblem, solution: MixSolution, running: Counts) -> float:
    """Excess cost of the running replicas, as a share of the bound; 0 where nothing cheaper is known.

    It counts cost alone, whatever else the objective counts when a move is made.
    """
    bound = solution.bound
    if not problem.objective.counts_price or not 0 < bound < float("inf"):
        bound = solution.cost_usd_per_h or 0.0
    if bound <= 0:
        return 0.0 if not _cost_usd_per_h(problem, running) else float("inf")
    return max(0.0, _cost_usd_per_h(problem, running) / bound - 1)


def _cost_usd_per_h(problem: MixProblem, counts: Counts) -> float:
    return problem.cost_usd_per_h(problem.units_of(counts, own_nodes=False))


def _kept(state: StabilityState, planned: Rates, solution: MixSolution, reason: str) -> Decision:
    return Decision(state.running, reason, planned, solution, state, moved=False)


def _moved(state: StabilityState, planned: Rates, solution: MixSolution, reason: str) -> Decision:
    after = replace(state, running=solution.replicas, saving_windows=0)
    moved = after.running != state.running
    return Decision(after.running, reason, planned, solution, after, moved=moved)
