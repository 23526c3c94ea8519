"""The rollout from the running replicas to the planned ones: make before break.

Each wave starts replicas, waits until they are warm, moves requests off those that will stop, and only then stops them.
The running replicas serve the demand at every step.  Where stock, quota and power allow it, one wave is enough.
Otherwise waves alternate: the next wave hires what the last one freed.  A depth-first search over single replicas finds
the order.  If it tried every order, the absence of a result is a proof, and the result names the missing units.

The rollout ignores prices and the spot share, because old and new replicas run together for a while; `temporary_usd` is
the cost of that.  `rollout_report` converts the rollout to its report.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from math import fsum

from pydantic import Field

from fleet.documents import Frozen
from planner.horizon.feasibility import Serving
from planner.problem import LimitKind, MixProblem

MAX_STATES = 5000  # counts tried before the search gives up
HELD_TO = (LimitKind.QUOTA, LimitKind.POWER)  # limits that hold at every moment
MIN_PER_H = 60.0

Counts = tuple[int, ...]


class Action(StrEnum):
    """The action of a step."""

    START = "start"
    ROUTE = "route"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Pace:
    warmup_h: tuple[float, ...]  # per option, from hiring to serving
    routing_h: float = 1 / 60  # until routers have loaded new weights
    drain_h: float = 5 / 60  # until a stopping replica has drained


@dataclass(frozen=True, slots=True)
class Step:
    """One step, and the state of the fleet at its end."""

    wave: int
    action: Action
    replicas: Mapping[int, int]  # option -> number started or stopped
    running: Counts  # replicas per option that serve from the end of the step on
    duration_h: float
    temporary_usd: float  # paid during the step beyond the price of the target


@dataclass(frozen=True, slots=True)
class Rollout:
    """The steps in order; none without a possible order, with the reason."""

    steps: tuple[Step, ...]
    possible: bool
    reason: str  # as text
    missing_units: Mapping[int, int]  # supply -> units beyond the stock that would allow one wave

    @property
    def duration_h(self) -> float:
        return fsum(step.duration_h for step in self.steps)

    @property
    def temporary_usd(self) -> float:
        """Cost of the rollout beyond the price of the target."""
        return fsum(step.temporary_usd for step in self.steps)


def plan_rollout(problem: MixProblem, *, current: Sequence[int], target: Sequence[int], pace: Pace) -> Rollout:
    """Plan the steps from the current counts to the target, with the demand served throughout."""
    return _Search(problem, tuple(current), tuple(target), pace).run()


class _Search:
    def __init__(self, problem: MixProblem, current: Counts, target: Counts, pace: Pace) -> None:
        self.problem, self.current, self.target, self.pace = problem, current, target, pace
        self.serves = Serving(problem)
        self.states = 0

    def run(self) -> Rollout:
        if self.current == self.target:
            return Rollout((), possible=True, reason="nothing changes", missing_units={})
        if not self.serves(self.target):
            return self._impossible("the target does not serve the demand")
        path = self._path()
        missing = self._missing_units()
        if path is None:
            stuck = "no order of steps" if self.states <= MAX_STATES else f"no order among {MAX_STATES} counts tried"
            return self._impossible(f"{stuck} keeps the demand served: {self._shortage(missing)}")
        steps = tuple(self._steps(path))
        waves = max(step.wave for step in steps)
        reason = (
            "all replicas start before any stops"
            if waves == 1
            else f"{waves} waves, as old and new do not fit at once: {self._shortage(missing)}"
        )
        return Rollout(steps, possible=True, reason=reason, missing_units=missing if waves > 1 else {})

    def _path(self) -> list[tuple[Action, int]] | None:
        """A valid order of single starts and stops: depth first, continuing with the last action."""
        visited = {self.current}
        trail: list[tuple[Counts, Action, Iterator[tuple[Action, int]]]] = []
        trail.append((self.current, Action.START, self._moves(self.current, Action.START)))
        done: list[tuple[Action, int]] = []
        while trail:
            counts, _, moves = trail[-1]
            if counts == self.target:
                return done
            for action, option in moves:
                after = _applied(counts, action, option)
                if after not in visited and self._allowed(counts, after, action):
                    visited.add(after)
                    self.states = len(visited)
                    if self.states > MAX_STATES:
                        return None
                    done.append((action, option))
                    trail.append((after, action, self._moves(after, action)))
                    break
            else:
                trail.pop()
                if done:
                    done.pop()
        return None

    def _moves(self, counts: Counts, last: Action) -> Iterator[tuple[Action, int]]:
        starts = [(Action.START, o) for o, (n, goal) in enumerate(zip(counts, self.target, strict=True)) if n < goal]
        stops = [(Action.STOP, o) for o, (n, goal) in enumerate(zip(counts, self.target, strict=True)) if n > goal]
        yield from (*stops, *starts) if last is Action.STOP else (*starts, *stops)

    def _allowed(self, before: Counts, after: Counts, action: Action) -> bool:
        return self.serves(after) if action is Action.STOP else self._fits(before, after)

    def _fits(self, before: Counts, after: Counts) -> bool:
        """Whether stock, quota and power allow it; a limit that is already exceeded must not be exceeded further."""
        then, now = self._units(before), self._units(after)
        for f, supply in enumerate(self.problem.supplies):
            if supply.available is not None and now[f] > max(supply.available, then[f]):
                return False
        for limit in self.problem.limits:
            if limit.kind in HELD_TO:
                values = [
                    fsum(weight * units[f] for f, weight in limit.units.items())
                    + fsum(weight * counts[o] for o, weight in limit.replicas.items())
                    for units, counts in ((then, before), (now, after))
                ]
                if values[1] > max(limit.at_most, values[0]) * (1 + 1e-9):
                    return False
        return True

    def _steps(self, path: list[tuple[Action, int]]) -> Iterator[Step]:
        running, wave = self.current, 0
        groups = [(action, [o for _, o in group]) for action, group in groupby(path, key=lambda move: move[0])]
        for position, (action, options) in enumerate(groups):
            after = running
            for option in options:
                after = _applied(after, action, option)
            wave += action is Action.START or position == 0
            if action is Action.START:
                warm_h = max(self.pace.warmup_h[option] for option in options)
                yield self._step(wave, action, options, running=after, hired=after, duration_h=warm_h)
                if position + 1 == len(groups) and self.serves(after):
                    yield self._routed(wave, hired=after)
            else:
                yield self._routed(wave, hired=running)
                yield self._step(wave, action, options, running=after, hired=running, duration_h=self.pace.drain_h)
            running = after

    def _routed(self, wave: int, *, hired: Counts) -> Step:
        """New weights for the replicas that stay, while the others still run."""
        return self._step(wave, Action.ROUTE, [], running=hired, hired=hired, duration_h=self.pace.routing_h)

    def _step(
        self, wave: int, action: Action, options: list[int], *, running: Counts, hired: Counts, duration_h: float
    ) -> Step:
        beyond = self._usd_per_h(hired) - self._usd_per_h(self.target)
        replicas = {option: options.count(option) for option in sorted(set(options))}
        return Step(wave, action, replicas, running, duration_h, max(0.0, beyond) * duration_h)

    def _missing_units(self) -> dict[int, int]:
        """Units beyond the stock that all old and all new replicas would need at once."""
        both = tuple(map(max, self.current, self.target))
        missing = {}
        for f, (units, supply) in enumerate(zip(self._units(both), self.problem.supplies, strict=True)):
            if supply.available is not None and units > supply.available:
                missing[f] = units - supply.available
        return missing

    def _shortage(self, missing: Mapping[int, int]) -> str:
        names = [f"{count} more of {self.problem.supplies[f].name}" for f, count in missing.items()]
        return f"{', '.join(names)} would allow one wave" if names else "quota or power does not hold both"

    def _impossible(self, reason: str) -> Rollout:
        return Rollout((), possible=False, reason=reason, missing_units=self._missing_units())

    def _units(self, counts: Counts) -> Counts:
        return self.problem.units_of(counts, own_nodes=False)

    def _usd_per_h(self, counts: Counts) -> float:
        return self.problem.cost_usd_per_h(self._units(counts))


def _applied(counts: Counts, action: Action, option: int) -> Counts:
    step = 1 if action is Action.START else -1
    return (*counts[:option], counts[option] + step, *counts[option + 1 :])


class Count(Frozen):
    """Replicas of an option.  Options of two workloads may share a name and are still different."""

    workload: str
    option: str
    replicas: int = Field(ge=1)


class RolloutMove(Frozen):
    """One step.  Steps run in sequence; started replicas serve at the end of theirs."""

    wave: int = Field(ge=0, description="Starts of a wave come before its stops.")
    action: Action
    replicas: tuple[Count, ...] = Field(description="Numbers started or stopped.")
    minutes: float = Field(ge=0)
    temporary_usd: float = Field(ge=0, description="Cost during the step beyond the price of the plan.")


class RolloutReport(Frozen):
    """All steps, make before break; none without a possible order, with the reason."""

    possible: bool
    reason: str
    steps: tuple[RolloutMove, ...] = ()
    minutes: float = Field(default=0.0, ge=0)
    temporary_usd: float = Field(default=0.0, ge=0)
    missing: dict[str, int] = Field(
        default_factory=dict, description="Units of a supply beyond its stock that would allow one wave."
    )


def rollout_report(problem: MixProblem, *, target: Sequence[int], warm_up_min: float) -> RolloutReport:
    held = tuple(option.held for option in problem.options)
    pace = Pace(warmup_h=(warm_up_min / MIN_PER_H,) * len(problem.options))
    found = plan_rollout(problem, current=held, target=target, pace=pace)
    return RolloutReport(
        possible=found.possible,
        reason=found.reason,
        steps=tuple(_move(problem, step) for step in found.steps),
        minutes=found.duration_h * MIN_PER_H,
        temporary_usd=found.temporary_usd,
        missing={problem.supplies[f].name: count for f, count in found.missing_units.items()},
    )


def named_counts(problem: MixProblem, replicas: Mapping[int, int]) -> tuple[Count, ...]:
    """Counts by name, each under the workload whose routes use the option; without zeros."""
    used_by = {leg.option: problem.loads[route.load].name for route in problem.routes for leg in route.legs}
    return tuple(
        Count(workload=used_by[o], option=problem.options[o].name, replicas=count)
        for o, count in sorted(replicas.items())
        if count
    )


def _move(problem: MixProblem, step: Step) -> RolloutMove:
    return RolloutMove(
        wave=step.wave,
        action=step.action,
        replicas=named_counts(problem, step.replicas),
        minutes=step.duration_h * MIN_PER_H,
        temporary_usd=step.temporary_usd,
    )
