"""The states of the guard, why it changes them, and what it tells about that.

NORMAL      the policy's setting holds
CAUTIOUS    eyes open, but planner or actuation cannot be trusted: never milder than the cautious clocks
BLIND       no believable reading: never milder than the level at which the worst case fits under the budget
BRAKED      every server at its brake clock
RELEASING   brake off, at the blind level until the row has shown that it holds
"""

from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from power.arrays import Bools, Floats, Ints
from power.controls import Setting

StateT = TypeVar("StateT")


class GuardMode(StrEnum):
    """Which setting holds."""

    NORMAL = "normal"
    DEGRADED = "degraded"
    TELEMETRY_LOST = "telemetry-lost"
    BRAKED = "braked"
    RELEASING = "releasing"


class Cause(StrEnum):
    """Why a mode was entered.  The first three of these brake."""

    OVER_BUDGET = "over-budget"  # a reading above the budget
    TELEMETRY_LOST_TOO_LONG = (
        "telemetry-lost-too-long"  # the worst case does not fit, and the breaker's curve leaves no more time
    )
    FOUND_BRAKED = "found-braked"  # a guard that was started anew met servers under the brake
    STALE_TELEMETRY = "stale-telemetry"
    NO_TELEMETRY = "no-telemetry"
    BUDGET_EXPIRED = "budget-expired"  # the planner is dead, late or cut off
    NO_BUDGET = "no-budget"
    ACTUATION_IGNORED = "actuation-ignored"
    BRAKE_RELEASED = "brake-released"
    RECOVERED = "recovered"


class EventKind(StrEnum):
    """What an event tells."""

    MODE = "mode"
    COMMANDED_AGAIN = "commanded-again"  # what servers enforce is not what they were told
    DRIVER_RELOADED = "driver-reloaded"  # caps forgotten
    UNRESPONSIVE = "unresponsive"  # told several times in vain, or silent
    RESPONSIVE = "responsive"  # deaf no more


class Event(NamedTuple):
    """Something to count, log and keep."""

    kind: EventKind
    at_s: float
    mode: GuardMode
    cause: Cause | None = None
    servers: tuple[int, ...] = ()


class CommandState(NamedTuple):
    """What every server was told, and how that went.  Arrays are never written to; a change makes new ones."""

    expected: Floats  # [4, servers], as `Servers.held`
    sent: Floats  # [2, servers]: the clocks that are under way to each; newer ones wait until these have landed
    due_s: Floats  # when the order under way must show; minus infinity: it has shown
    tries: Ints  # orders in a row that did not show
    unresponsive: Bools
    silent: Bools
    braked: bool
    open: bool  # whether any order has yet to show, or any server is deaf
    stacked: bool  # whether any server was told anew while an order was under way to it
    reserve_w: float  # what deaf servers may draw above what they were told


class GuardState(NamedTuple, Generic[StateT]):
    """All that the guard remembers.  A value: a step returns another."""

    mode: GuardMode
    since_s: float
    cause: Cause | None
    policy: StateT
    wanted: Setting  # the policy's last word
    setting: Setting  # in force
    limit_w: float  # the last believed budget, never above the standing one once it is believed no more
    had_budget: bool  # whether a planner was ever believed
    commands: CommandState
    has_readback: bool  # whether servers have been heard at all
    has_commanded: bool  # whether servers were told any clocks
    started_s: float  # of the first step
    engaged_s: float  # when the brake last was
    released_s: float  # readings up to here say nothing new about the budget
    read_s: float  # the newest reading while blind
    good_readings: int  # since the row came back in sight
    brakes: int
