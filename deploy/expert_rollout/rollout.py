"""The next command that brings the wanted map to every replica of a deployment: a pure function without state.

With w the wanted map, c the current command, and the status of each replica r:

    wait       replicas start, stop or do not report, some have not received c, or one is changing
    begin      c is for another map or attempt:      next = w, no turn: every replica checks w
    roll back  some r refuses c.next:                c.refusal, from now on the goal is c.good
    turn       some r has not loaded c's goal:       the first such replica gets the turn
    finish     all have loaded c.next:               good = next, no turn
    done       all have loaded c.next and it is c.good

`wait` comes first, so a replica gets its turn only when all have received the previous command and none is changing:
never two at once.  The decision depends on the observed state only, so another controller can continue at any point.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetwright.expert_rollout.messages import MapFile, ReplicaStatus, RolloutCommand, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentState:
    requested: int  # number of replicas
    running: frozenset[str]  # ids of the replicas that take requests
    unsettled: int  # replicas that start, receive a config or recover
    stamp: str  # of the current user_config
    command: RolloutCommand | None  # None: missing or damaged
    statuses: Mapping[str, ReplicaStatus]


@dataclass(frozen=True, slots=True)
class Write:
    command: RolloutCommand


@dataclass(frozen=True, slots=True)
class Wait:
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """All replicas have the map."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The map is refused, and no replica changes any more."""

    reason: str


Move = Write | Wait | Done | Refused


def next_move(
    *, wanted: MapFile, attempt: int, state: DeploymentState, known: Mapping[str, MapFile] | None = None
) -> Move:
    """Return the next move.  `known` holds files by digest, for a first command where replicas already have maps."""
    if (reason := _unsettled(state)) is not None:
        return Wait(reason)
    command = state.command
    if command is None:
        return Write(_begun(wanted, attempt, state, known or {}))
    if (digest(command.next), command.attempt) != (wanted.digest, attempt):
        return Write(_next(command, next=wanted, attempt=attempt, refusal=None, turn=None))
    if command.refusal is None and (reason := _refusal(command.next, state)) is not None:
        return Write(_next(command, refusal=reason, turn=None))
    return _towards_goal(command, state)


def roll_back_move(*, reason: str, state: DeploymentState) -> Move:
    """Return the next move where the wanted map cannot be rolled out: a rollout of another map is rolled back."""
    if (command := state.command) is None:
        return Refused(reason)
    if (unsettled := _unsettled(state)) is not None:
        return Wait(unsettled)
    if digest(command.next) != digest(command.good):
        return Write(_next(command, next=command.good, refusal=None, turn=None))
    move = _towards_goal(command, state)
    return Refused(reason) if isinstance(move, Done) else move


def _towards_goal(command: RolloutCommand, state: DeploymentState) -> Move:
    behind = [name for name in sorted(state.running) if state.statuses[name].loaded != digest(command.goal)]
    if not behind:
        if command.refusal is not None:
            return Refused(command.refusal)
        if command.turn is None and digest(command.good) == digest(command.next):
            return Done()
        return Write(_next(command, good=command.next, turn=None))
    if command.refusal is not None and (stuck := _refusal(command.good, state)) is not None:
        return Refused(f"{command.refusal}; and the previous map cannot be restored: {stuck}")
    if command.turn in behind:  # it received its turn, is not changing, and has neither loaded nor refused the map
        reason = f"{command.turn} received its turn and did not load the map"
        rollback = Write(_next(command, refusal=reason, turn=None))
        return rollback if command.refusal is None else Refused(command.refusal)
    return Write(_next(command, turn=behind[0]))


def _unsettled(state: DeploymentState) -> str | None:
    running = len(state.running)
    if state.unsettled or running != state.requested:
        return f"{running} of {state.requested} replicas are settled"
    if silent := sorted(state.running - state.statuses.keys()):
        return f"{len(silent)} of {running} replicas do not report, {silent[0]} among them"
    statuses = [state.statuses[name] for name in sorted(state.running)]
    if outdated := [entry.replica_id for entry in statuses if entry.stamp != state.stamp]:
        return f"{len(outdated)} of {running} replicas have not received the command, {outdated[0]} among them"
    if changing := [entry.replica_id for entry in statuses if entry.changing]:
        return f"{changing[0]} is changing"
    return None


def _refusal(file: MapFile | None, state: DeploymentState) -> str | None:
    if file is None:
        return None
    for name in sorted(state.running):
        if (reason := state.statuses[name].refusals.get(file.digest)) is not None:
            return f"{name} refuses it: {reason}"
    return None


def _next(command: RolloutCommand, **changes: object) -> RolloutCommand:
    return replace(command, number=command.number + 1, **changes)  # type: ignore[arg-type]


def _begun(wanted: MapFile, attempt: int, state: DeploymentState, known: Mapping[str, MapFile]) -> RolloutCommand:
    """Return the first command, or the one after a damaged or missing one: the map of most replicas is good."""
    statuses = [state.statuses[name] for name in sorted(state.running)]
    good = None
    if statuses:
        (held, _), *_ = Counter(entry.loaded for entry in statuses).most_common(1)
        good = known.get(held) if held is not None else None
    number = max((entry.number for entry in statuses), default=0) + 1
    return RolloutCommand(number=number, next=wanted, good=good, attempt=attempt)
