"""The states of the guard, the causes of their transitions, its events and its commands.

NORMAL           the policy's setting applies
DEGRADED         readings are fresh, but budget or actuation is not reliable: at most the degraded clocks
TELEMETRY_LOST   no valid reading: at most the clocks at which the worst case fits under the budget
BRAKED           every server at its brake clock
RELEASING        brake off, at the worst-case clocks until the row has stayed below the budget
"""

from enum import StrEnum
from math import inf
from typing import Generic, NamedTuple, TypeVar

from power.arrays import Bools, Floats, Ints
from power.controls import Setting
from power.guard.telemetry import NO_SERVERS

StateT = TypeVar("StateT")


class GuardMode(StrEnum):
    """The setting that applies."""

    NORMAL = "normal"
    DEGRADED = "degraded"
    TELEMETRY_LOST = "telemetry-lost"
    BRAKED = "braked"
    RELEASING = "releasing"


class Cause(StrEnum):
    """The cause of a transition.  The first three engage the brake."""

    OVER_BUDGET = "over-budget"  # a reading above the budget
    TELEMETRY_LOST_TOO_LONG = (
        "telemetry-lost-too-long"  # the worst case does not fit, and the breaker's curve leaves no more time
    )
    FOUND_BRAKED = "found-braked"  # a new guard found servers under the brake
    STALE_TELEMETRY = "stale-telemetry"
    NO_TELEMETRY = "no-telemetry"
    BUDGET_EXPIRED = "budget-expired"  # the planner is dead, late or cut off
    NO_BUDGET = "no-budget"
    ACTUATION_IGNORED = "actuation-ignored"
    BRAKE_RELEASED = "brake-released"
    RECOVERED = "recovered"


class EventKind(StrEnum):
    MODE = "mode"
    COMMANDED_AGAIN = "commanded-again"  # servers did not enforce their command
    DRIVER_RELOADED = "driver-reloaded"  # caps lost
    UNRESPONSIVE = "unresponsive"  # several commands without effect, or no report
    RESPONSIVE = "responsive"  # no longer unresponsive


class Event(NamedTuple):
    """An event to count, log and store."""

    kind: EventKind
    at_s: float
    mode: GuardMode
    cause: Cause | None = None
    servers: tuple[int, ...] = ()


class CommandState(NamedTuple):
    """The commands to every server and their state.  Arrays are immutable; a change makes new ones."""

    expected: Floats  # [4, servers], as `Servers.held`
    sent: Floats  # [2, servers]: the clocks that are under way to each; newer ones wait until these have landed
    due_s: Floats  # when the command in flight must show; minus infinity: it was read back
    tries: Ints  # commands in a row that did not show
    unresponsive: Bools
    silent: Bools
    braked: bool
    open: bool  # whether any command has yet to show, or any server is unresponsive
    stacked: bool  # whether any server got a newer command while one was in flight
    reserve_w: float  # possible power of unresponsive servers above their commands


class GuardState(NamedTuple, Generic[StateT]):
    """The state of the guard.  Immutable: a step returns the next state."""

    mode: GuardMode
    since_s: float
    cause: Cause | None
    policy: StateT
    wanted: Setting  # the policy's last setting
    setting: Setting  # in force
    limit_w: float  # the last valid budget, at most the standing budget after it expired
    had_budget: bool  # whether there ever was a valid budget
    commands: CommandState
    has_readback: bool  # whether servers were read back at all
    has_commanded: bool  # whether any clocks were commanded
    started_s: float  # of the first step
    engaged_s: float  # when the brake last was
    released_s: float  # readings up to here do not count as above the budget
    read_s: float  # the newest reading while telemetry is lost
    good_readings: int  # since readings came back
    brakes: int


class Commands(NamedTuple):
    """The output of a step of the guard.  Commands are idempotent."""

    mode: GuardMode
    setting: Setting  # in force: limits and routing for the router, clocks for the servers in `command`
    command: Ints = NO_SERVERS  # servers to command `setting.clocks`
    brake: Ints = NO_SERVERS  # servers to brake
    release: Ints = NO_SERVERS  # servers to release from the brake
    events: tuple[Event, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.command.size or self.brake.size or self.release.size)


class Calm(NamedTuple):
    """The range in which a step changes nothing: fresh readings stay below, budget and read-backs do not change."""

    below_w: float
    until_s: float


NOT_CALM = Calm(-inf, -inf)
