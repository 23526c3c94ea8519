"""The rollout from the running replicas to the plan, in the form of the answer."""

from collections.abc import Mapping, Sequence

from pydantic import Field

from fleet.documents import Frozen
from planner.problem import MixProblem
from planner.rollout_planner import Action, Pace, Step, plan_rollout

MIN_PER_H = 60.0


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
