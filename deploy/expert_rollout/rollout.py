"""What to order next so that every replica of a deployment has the wanted map: pure, and without memory.

With w the wanted map, o the order that stands, and for each replica r what it says:

    wait      while replicas start, stop or are silent, while some have not heard o, while one is changing
    order     o is for another map or attempt:                    next = w, nobody's turn: every replica checks w
    put back  some r refuses o.next:                              o.refusal, from now on everyone's goal is o.good
    turn      some r has not loaded o's goal:                     it is the first such replica's turn
    finish    all have loaded o.next:                             good = next, nobody's turn
    done      all have loaded o.next and it is o.good

`wait` comes first, so a replica is named only when all have heard who was named before and none is changing: never two
at once.  Everything follows from what is read: a controller may die at any point and the next one goes on.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetwright.expert_rollout.messages import MapFile, Order, Says, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A deployment as it was read just now."""

    asked: int  # replicas that Serve was asked for
    running: frozenset[str]  # ids of those that take requests
    restless: int  # replicas that start, hear a config or recover
    stamp: str  # of the user_config that stands
    order: Order | None  # None: there is none, or it is damaged
    says: Mapping[str, Says]


@dataclass(frozen=True, slots=True)
class Write:
    """Put this order in the place of the one that stands."""

    order: Order


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """All replicas have it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It will not be had, and nobody changes any more."""

    reason: str


Move = Write | Wait | Done | Refused


def next_move(*, wanted: MapFile, attempt: int, sight: Sight, known: Mapping[str, MapFile] | None = None) -> Move:
    """One move.  `known` holds files by digest, for an order that is begun where replicas already have maps."""
    if (reason := _unsettled(sight)) is not None:
        return Wait(reason)
    order = sight.order
    if order is None:
        return Write(_begun(wanted, attempt, sight, known or {}))
    if (digest(order.next), order.attempt) != (wanted.digest, attempt):
        return Write(_next(order, next=wanted, attempt=attempt, refusal=None, turn=None))
    if order.refusal is None and (reason := _refusal(order.next, sight)) is not None:
        return Write(_next(order, refusal=reason, turn=None))
    return _towards_goal(order, sight)


def without(*, reason: str, sight: Sight) -> Move:
    """One move where no order may be given for the wanted map: a roll of another one that has begun is put back."""
    if (order := sight.order) is None:
        return Refused(reason)
    if (unsettled := _unsettled(sight)) is not None:
        return Wait(unsettled)
    if digest(order.next) != digest(order.good):
        return Write(_next(order, next=order.good, refusal=None, turn=None))
    move = _towards_goal(order, sight)
    return Refused(reason) if isinstance(move, Done) else move


def _towards_goal(order: Order, sight: Sight) -> Move:
    behind = [name for name in sorted(sight.running) if sight.says[name].loaded != digest(order.goal)]
    if not behind:
        if order.refusal is not None:
            return Refused(order.refusal)
        if order.turn is None and digest(order.good) == digest(order.next):
            return Done()
        return Write(_next(order, good=order.next, turn=None))
    if order.refusal is not None and (stuck := _refusal(order.good, sight)) is not None:
        return Refused(f"{order.refusal}; and the map before it cannot be put back: {stuck}")
    if order.turn in behind:  # it heard so, is not changing, and has neither loaded nor refused it
        reason = f"{order.turn} was told to load the map and did not"
        return Refused(order.refusal) if order.refusal is not None else Write(_next(order, refusal=reason, turn=None))
    return Write(_next(order, turn=behind[0]))


def _unsettled(sight: Sight) -> str | None:
    running = len(sight.running)
    if sight.restless or running != sight.asked:
        return f"{running} of {sight.asked} replicas are at rest"
    if silent := sorted(sight.running - sight.says.keys()):
        return f"{len(silent)} of {running} replicas do not say what they have, {silent[0]} among them"
    said = [sight.says[name] for name in sorted(sight.running)]
    if deaf := [entry.replica_id for entry in said if entry.stamp != sight.stamp]:
        return f"{len(deaf)} of {running} replicas have yet to hear the order, {deaf[0]} among them"
    if changing := [entry.replica_id for entry in said if entry.changing]:
        return f"{changing[0]} is changing over"
    return None


def _refusal(file: MapFile | None, sight: Sight) -> str | None:
    if file is None:
        return None
    for name in sorted(sight.running):
        if (reason := sight.says[name].refusals.get(file.digest)) is not None:
            return f"{name} refuses it: {reason}"
    return None


def _next(order: Order, **changes: object) -> Order:
    return replace(order, number=order.number + 1, **changes)  # type: ignore[arg-type]


def _begun(wanted: MapFile, attempt: int, sight: Sight, known: Mapping[str, MapFile]) -> Order:
    """The first order, or the first after one was damaged or taken away: what most replicas have counts as good."""
    said = [sight.says[name] for name in sorted(sight.running)]
    good = None
    if said:
        (held, _), *_ = Counter(entry.loaded for entry in said).most_common(1)
        good = known.get(held) if held is not None else None
    number = max((entry.number for entry in said), default=0) + 1
    return Order(number=number, next=wanted, good=good, attempt=attempt)
