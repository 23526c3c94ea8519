"""An iteration of pipeline-parallel training as a graph: which computation waits for which.

Stage `s` of `S` runs the passes of its microbatches in a fixed order (1F1B: `S - s` forwards, then one backward for
one forward; GPipe: all forwards, then all backwards).  A forward waits for the stage before, a backward for the one
after.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fleet.documents import RuleError, Violation
from power.training.operating_points import Choice, Computation

MAX_COMPUTATIONS = 20_000


@dataclass(frozen=True)
class Iteration:
    """Computations, and the pairs (before, after) among them; each stage represents so many boards."""

    computations: tuple[Computation, ...]
    waits: tuple[tuple[int, int], ...]
    blocked_w: float  # of one stage that waits
    stages: int

    def __post_init__(self) -> None:
        RuleError.raise_for(self._violations())

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        return self._neighbours(self.waits)

    @cached_property
    def before(self) -> tuple[tuple[int, ...], ...]:
        return self._neighbours((after, before) for before, after in self.waits)

    @cached_property
    def order(self) -> tuple[int, ...]:
        return tuple(_topological(self.after, self.before))

    def starts_s(self, times_s: Sequence[float]) -> list[float]:
        """Return the earliest start of each computation."""
        starts = [0.0] * len(times_s)
        for one in self.order:
            starts[one] = max((starts[before] + times_s[before] for before in self.before[one]), default=0.0)
        return starts

    def time_s(self, times_s: Sequence[float]) -> float:
        return max(start + time for start, time in zip(self.starts_s(times_s), times_s, strict=True))

    def energy_j(self, choices: Sequence[Choice]) -> float:
        """Return the energy of all stages until the last one ends: computing and waiting."""
        times = [choice.time_s for choice in choices]
        waiting_s = self.stages * self.time_s(times) - sum(times)
        return sum(choice.energy_j for choice in choices) + self.blocked_w * waiting_s

    def _neighbours(self, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.computations]
        for one, other in pairs:
            found[one].append(other)
        return tuple(map(tuple, found))

    def _violations(self) -> Iterator[Violation]:
        if not 1 <= len(self.computations) <= MAX_COMPUTATIONS:
            yield ("computations",), f"must be 1 to {MAX_COMPUTATIONS:,}, got {len(self.computations):,}"
            return
        if not 0 <= self.blocked_w < float("inf"):
            yield ("blocked_w",), f"must be from 0, got {self.blocked_w:g}"
        if any(not 0 <= each < len(self.computations) for pair in self.waits for each in pair):
            yield ("waits",), f"must be pairs of numbers below {len(self.computations)}"
        elif len(self.order) < len(self.computations):
            yield ("waits",), "must not go round in a circle"


class Pass(NamedTuple):
    """The pass of one microbatch through one stage, in one direction."""

    forward: bool
    microbatch: int


FORWARD, BACKWARD = True, False
Schedule = Callable[[int, int, int], Sequence[Pass]]  # (stage, stages, microbatches) -> its passes in order


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[Pass]:
    """Return 1F1B (PipeDream-Flush, arXiv 2006.09503): as few microbatches in flight as keep all stages busy."""
    ahead = min(microbatches, stages - stage)
    passes = [Pass(FORWARD, each) for each in range(ahead)]
    for each in range(microbatches):
        passes.append(Pass(BACKWARD, each))
        if ahead + each < microbatches:
            passes.append(Pass(FORWARD, ahead + each))
    return passes


def all_forward_all_backward(_stage: int, _stages: int, microbatches: int) -> list[Pass]:
    """Return GPipe (arXiv 1811.06965)."""
    forward = [Pass(FORWARD, each) for each in range(microbatches)]
    return forward + [Pass(BACKWARD, each) for each in reversed(range(microbatches))]


def pipeline(
    *,
    forward: Sequence[tuple[Choice, ...]],
    backward: Sequence[tuple[Choice, ...]],
    microbatches: int,
    blocked_w: float,
    schedule: Schedule = one_forward_one_backward,
) -> Iteration:
    """Return the iteration of a pipeline with these choices for each stage's passes."""
    if len(forward) != len(backward) or not forward:
        message = f"must have as many stages as forward, at least 1; got {len(backward)} and {len(forward)}"
        raise RuleError([(("backward",), message)])
    if not 1 <= microbatches <= MAX_COMPUTATIONS:
        raise RuleError([(("microbatches",), f"must be 1 to {MAX_COMPUTATIONS:,}, got {microbatches}")])
    stages = len(forward)
    number: dict[tuple[int, Pass], int] = {}
    computations: list[Computation] = []
    waits: list[tuple[int, int]] = []
    for stage in range(stages):
        first = len(computations)
        for one in schedule(stage, stages, microbatches):
            number[stage, one] = len(computations)
            if len(computations) > first:
                waits.append((len(computations) - 1, len(computations)))
            choices = (forward if one.forward else backward)[stage]
            name = f"{'forward' if one.forward else 'backward'} {one.microbatch} on stage {stage}"
            computations.append(Computation(name=name, stage=stage, choices=choices))
    for (stage, one), at in number.items():
        following = stage + 1 if one.forward else stage - 1
        if 0 <= following < stages:
            waits.append((at, number[following, one]))
        elif one.forward:
            waits.append((at, number[stage, Pass(BACKWARD, one.microbatch)]))
    return Iteration(tuple(computations), tuple(waits), blocked_w, stages)


def _topological(after: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> Iterator[int]:
    left = [len(each) for each in before]
    ready = [at for at, count in enumerate(left) if not count]
    while ready:
        one = ready.pop()
        yield one
        for following in after[one]:
            left[following] -= 1
            if not left[following]:
                ready.append(following)
