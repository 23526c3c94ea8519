"""Cost and benefit of moving copies, and when to move: two levels with hysteresis.

docs/explanation/placement/migration.md has the formulas.  Gain and cost are in seconds of the whole fleet.  Nothing
moves up to `act_above`; above it, moves aim at `settle_at` until the mean is there.  Where no migration reaches
`settle_at`, the reached level counts as settled: the next action needs a rise by the width of the band, so constant
loads never move copies twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.documents import RuleError, Violation

SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Levels:
    act_above: float
    settle_at: float

    def __post_init__(self) -> None:
        if not 1 <= self.settle_at <= self.act_above:
            message = f"must be from 1 to `act_above` ({self.act_above:g}), got {self.settle_at:g}"
            raise RuleError([(("settle_at",), message)])


@dataclass(frozen=True, slots=True)
class Window:
    """The use of a placement, and the effect of moving on it."""

    window_s: float  # duration of the assumed loads
    moe_share: float  # MoE layers' share of the step time at the present imbalance, from 0 to 1
    slowdown: float  # share of throughput lost while copies move, from 0 to 1
    stall_s: float = 0.0  # per batch
    margin: float = 1.5  # required gain per cost

    def __post_init__(self) -> None:
        RuleError.raise_for(_window_violations(self))


@dataclass(frozen=True, slots=True)
class CostBenefit:
    """Gain and cost of one migration, in seconds of the whole fleet."""

    gain_s: float
    cost_s: float
    margin: float

    @property
    def pays(self) -> bool:
        return self.gain_s > self.cost_s * self.margin


@dataclass(frozen=True, slots=True)
class Decision:
    """The action now; passed to the next window, it is the whole state."""

    act: bool = False  # move towards `settle_at`
    settled_at: float | None = None  # the level above `settle_at` where moving ended: nothing better found or paid


def evaluate_migration(*, now: float, after: float, moving_s: float, batches: int, window: Window) -> CostBenefit:
    gain_s = window.window_s * window.moe_share * (1 - after / now)
    cost_s = moving_s * window.slowdown + batches * window.stall_s
    return CostBenefit(gain_s, cost_s, window.margin)


def decide(last: Decision, *, now: float, levels: Levels, benefit: CostBenefit | None = None) -> Decision:
    """Whether to move at the mean imbalance `now`; `benefit` of the best known migration, or None without one.

    Call again with the reached imbalance after the moves, so that the decision settles.
    """
    if now <= levels.settle_at + SAME:
        return Decision()
    if last.act:
        if benefit is not None and benefit.pays:
            return Decision(act=True)
        return Decision(settled_at=now)
    if now <= idle_up_to(last, levels) + SAME:
        return last
    return Decision(act=True) if benefit is not None and benefit.pays else last


def idle_up_to(last: Decision, levels: Levels) -> float:
    """The mean imbalance up to which nothing moves, unless moves are in progress."""
    if last.settled_at is None:
        return levels.act_above
    return max(levels.act_above, last.settled_at + levels.act_above - levels.settle_at)


def _window_violations(window: Window) -> Iterator[Violation]:
    if not window.window_s > 0:
        yield ("window_s",), f"must be above 0, got {window.window_s:g}"
    for name in ("moe_share", "slowdown"):
        if not 0 <= getattr(window, name) <= 1:
            yield (name,), f"must be from 0 to 1, got {getattr(window, name):g}"
    if not window.stall_s >= 0:
        yield ("stall_s",), f"must be at least 0, got {window.stall_s:g}"
    if not window.margin > 0:
        yield ("margin",), f"must be above 0, got {window.margin:g}"
