"""The rungs of the ladder: the settings of a row's clocks that save the most power for their loss.

    minimise    sum over controls l of  loss_l(c_l)
    subject to  sum over controls l of  saved_l(c_l) >= wanted watts,     one clock c_l of a grid for each control

is a multiple-choice knapsack.  A control is a priority in a phase; `saved` and `loss` are sums over the server models
expected in it.  On the concave hull of each control's points the best next step is the one with the most power per
loss (Sinha and Zoltners, 1979), so sorting the steps of all hulls gives, rung by rung, settings that no other setting
dominates.  Two rungs differ by one step of one control, and the grid is fine.

The loss of one server at a lower clock is its time over the slack of its priority, as in the cap program:

    loss(priority, phase, clock) = (slowdown(phase, clock) - 1) / slack(priority)

A priority that is slowed in every phase by exactly its slack loses one per server.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from fleet.documents import Frozen
from power.arrays import Floats
from power.controls import FULL_CLOCK, Clocks, Phase, Priority
from power.server_model import ServerModel
from power.workload.workload import TrainingJob

SlackShare = Annotated[float, Field(gt=0, le=100)]

CLOCK_STEP = 0.02  # two to three of the 15 MHz steps of an A100
MIN_CLOCK = 0.3
TRAINING_SLACK = 0.10  # POLCA reports 20 % of a training server's peak for 10 % of its speed (as quoted)

SERVING = (
    ("low_token", Priority.LOW, Phase.TOKEN),
    ("high_token", Priority.HIGH, Phase.TOKEN),
    ("low_prompt", Priority.LOW, Phase.PROMPT),
    ("high_prompt", Priority.HIGH, Phase.PROMPT),
)


class Slack(Frozen):
    """The slack of each priority, as a share of the time of a request; POLCA's median limits."""

    low: SlackShare = 0.05
    high: SlackShare = 0.01

    def of(self, priority: Priority) -> float:
        return self.high if priority is Priority.HIGH else self.low


def slowdown(model: ServerModel, phase: Phase, clock: float) -> float:
    if phase is Phase.PROMPT:
        return model.prompt_slowdown(clock)
    return model.token_slowdown(clock) if phase is Phase.TOKEN else 1.0


def clock_loss(model: ServerModel, priority: Priority, phase: Phase, clock: float, slack: Slack) -> float:
    return (slowdown(model, phase, clock) - 1) / slack.of(priority)


class Point(NamedTuple):
    """Loss and saving of one clock of a control, relative to full clock."""

    clock: float
    loss: float
    saved_w: float


class Step(NamedTuple):
    """A step from one clock of a control to the next on its hull."""

    control: str  # a field of Clocks
    clock: float
    loss: float  # more than before
    saved_w: float  # more than before


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One setting of the clocks on the frontier, with its expected loss and saving."""

    clocks: Clocks
    loss: float
    saved_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Servers that share one clock."""

    name: str  # a field of Clocks
    loss: Callable[[float], float]  # at a clock, of all its servers together
    saved_w: Callable[[float], float]


def clock_grid(lowest: float = MIN_CLOCK, step: float = CLOCK_STEP) -> tuple[float, ...]:
    """Return the clocks from full clock down."""
    steps = int(round((FULL_CLOCK - lowest) / step, 6))
    return tuple(round(FULL_CLOCK - each * step, 6) for each in range(steps + 1))


def controls_of(
    kinds: Sequence[ServerModel], mix: Floats, *, slack: Slack, jobs: Sequence[TrainingJob] = ()
) -> tuple[Control, ...]:
    """Return the controls of a row; `mix` is the expected number of servers in each [model, priority, phase]."""
    serving = [
        _serving_control(kinds, mix, name=name, priority=priority, phase=phase, slack=slack)
        for name, priority, phase in SERVING
    ]
    return (*serving, *([_training_control(jobs)] if jobs else []))


def frontier(controls: Sequence[Control], grid: Sequence[float]) -> tuple[Rung, ...]:
    """Return the rungs from no saving to the full saving, each with the least loss for its saving."""
    steps = [step for control in controls for step in _hull_steps(control, grid)]
    # Ties: the earlier control first.  Within a control the ratio falls, so its order holds.
    steps.sort(key=lambda step: -step.saved_w / step.loss if step.loss > 0 else -np.inf)
    rungs = [Rung(clocks=Clocks(), loss=0.0, saved_w=0.0)]
    for step in steps:
        last = rungs[-1]
        clocks = last.clocks._replace(**{step.control: step.clock})
        rungs.append(Rung(clocks=clocks, loss=last.loss + step.loss, saved_w=last.saved_w + step.saved_w))
    return tuple(rungs)


def _serving_control(
    kinds: Sequence[ServerModel], mix: Floats, *, name: str, priority: Priority, phase: Phase, slack: Slack
) -> Control:
    expected = [(model, float(count)) for model, count in zip(kinds, mix[:, priority, phase], strict=True)]

    def loss(clock: float) -> float:
        return sum(count * clock_loss(model, priority, phase, clock, slack) for model, count in expected)

    def saved_w(clock: float) -> float:
        return sum(count * (model.watts(phase) - model.watts(phase, clock)) for model, count in expected)

    return Control(name=name, loss=loss, saved_w=saved_w)


def _training_control(jobs: Sequence[TrainingJob]) -> Control:
    def loss(clock: float) -> float:
        return sum(job.servers * (job.slowdown(clock) - 1) for job in jobs) / TRAINING_SLACK

    def saved_w(clock: float) -> float:
        return sum(job.servers * (job.compute_w - job.peak_w(clock)) for job in jobs)

    return Control(name="training", loss=loss, saved_w=saved_w)


def _hull_steps(control: Control, grid: Sequence[float]) -> Iterator[Step]:
    points = (Point(clock, control.loss(clock), control.saved_w(clock)) for clock in grid)
    for before, after in pairwise(_concave(points)):
        yield Step(control.name, after.clock, after.loss - before.loss, after.saved_w - before.saved_w)


def _concave(points: Iterator[Point]) -> list[Point]:
    """Return the upper hull of points in order of falling clock: loss and savings rise together."""
    hull: list[Point] = []
    for point in points:
        if hull and point.saved_w <= hull[-1].saved_w:
            continue  # slower for nothing
        while len(hull) > 1 and not _bends_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _bends_down(first: Point, middle: Point, last: Point) -> bool:
    before = (middle.saved_w - first.saved_w) * (last.loss - middle.loss)
    return before > (last.saved_w - middle.saved_w) * (middle.loss - first.loss)
