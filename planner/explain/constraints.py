"""What a request asks for, one requirement at a time: each can be named, eased by an amount, or dropped.

A price asks what easing one of them by a step would save; a conflict asks which of them cannot all hold.  To ease a
requirement never makes a mix impossible, and the more it is eased, the more mixes hold.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from math import inf
from typing import Any

from planner.problem import Limit, LimitKind, MixProblem

PERCENT = 0.01
W_PER_KW = 1000.0


class Kind(StrEnum):
    """What a requirement is about."""

    DEMAND = "demand"
    STOCK = "stock"
    QUOTA = "quota"
    POWER = "power"
    SPOT = "spot"
    BUDGET = "budget"
    MIN_REPLICAS = "min-replicas"
    STARTS = "starts"
    STOPS = "stops"
    NODE_LOSS = "node-loss"
    ZONE_LOSS = "zone-loss"
    ERRING = "erring-profiles"
    HEADROOM = "headroom"


Ease = Callable[[MixProblem, float], MixProblem]
Slack = Callable[[Sequence[int], Sequence[int]], float]  # of units and replicas
EasingText = Callable[[float], str]

LIMITS_IN_TURN = {
    LimitKind.QUOTA: Kind.QUOTA,
    LimitKind.POWER: Kind.POWER,
    LimitKind.SPOT: Kind.SPOT,
    LimitKind.BUDGET: Kind.BUDGET,
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of them.  Amounts count in its own unit: units, GPUs, W, $/h, replicas, or shares of 1."""

    kind: Kind
    name: str  # with its figure
    step: float  # the natural amount to ease it by; infinite where it holds or does not
    grain: float  # the finest amount told apart; 0 where any is
    most: float  # the amount that leaves nothing of it; infinite where none does
    ease: Ease  # by an amount; an infinite one drops it
    easing: EasingText  # what it is to ease it by an amount
    slack: Slack | None = None  # how far counts stay within it; None where counts do not tell
    position: int = 0  # of the workload, supply or limit it is about

    def dropped(self, problem: MixProblem) -> MixProblem:
        """The problem without it."""
        return self.ease(problem, inf)


def requirements(problem: MixProblem) -> tuple[Requirement, ...]:
    """All that stand in the way of a cheaper mix, or of any."""
    return (
        *map(partial(_demand, problem), sorted({w for w, _ in problem.buckets()})),
        *(_stock(problem, f) for f, supply in enumerate(problem.supplies) if supply.available is not None),
        *(_limit(problem, position) for position, limit in enumerate(problem.limits) if _is_requested(limit)),
        *(_min_replicas(problem, w) for w, load in enumerate(problem.loads) if load.min_replicas),
        *_moves(problem),
        *_survival(problem),
        *_margins(problem),
    )


def without(problem: MixProblem, dropped: Iterable[Requirement]) -> MixProblem:
    """The problem without some of its requirements."""
    for requirement in dropped:
        problem = requirement.dropped(problem)
    return problem


def plural(count: float, noun: str) -> str:
    """`1 GPU`, `3 GPUs`."""
    return f"{count:.0f} {noun}{'' if round(count) == 1 else 's'}"


def _demand(problem: MixProblem, w: int) -> Requirement:
    name = problem.loads[w].name

    def ease(eased: MixProblem, amount: float) -> MixProblem:
        left = max(0.0, 1.0 - amount)
        return _with_load(eased, w, rate_rps=tuple(left * rate_rps for rate_rps in eased.loads[w].rate_rps))

    return Requirement(
        Kind.DEMAND,
        f"the demand of {name} ({sum(problem.loads[w].rate_rps):.4g} rps)",
        step=PERCENT,
        grain=PERCENT / 10,
        most=1.0,
        ease=ease,
        easing=lambda amount: f"{amount / PERCENT:.4g} % less demand of {name}" if amount < 1 else f"nothing of {name}",
        position=w,
    )


def _stock(problem: MixProblem, f: int) -> Requirement:
    name, available = problem.supplies[f].name, problem.supplies[f].available or 0

    def ease(eased: MixProblem, amount: float) -> MixProblem:
        known = eased.supplies[f].available
        more = None if amount == inf or known is None else known + round(amount)
        return replace(eased, supplies=_put(eased.supplies, f, replace(eased.supplies[f], available=more)))

    return Requirement(
        Kind.STOCK,
        f"the stock of {name} ({available})",
        step=1,
        grain=1,
        most=inf,
        ease=ease,
        easing=lambda amount: f"{amount:.0f} more {name}",
        slack=lambda units, _: available - units[f],
        position=f,
    )


def _limit(problem: MixProblem, position: int) -> Requirement:
    limit = problem.limits[position]
    if limit.kind is LimitKind.SPOT:
        return _spot(problem, position)
    name, step, grain, easing = _cap_text(limit)

    def ease(eased: MixProblem, amount: float) -> MixProblem:
        known = eased.limits[position]
        return _with_limit(eased, position, _void(known) if amount == inf else _raised(known, amount))

    kind = LIMITS_IN_TURN[limit.kind]
    slack = partial(_room, limit)
    return Requirement(
        kind, name, step=step, grain=grain, most=inf, ease=ease, easing=easing, slack=slack, position=position
    )


def _is_requested(limit: Limit) -> bool:
    """A quota counts what is hired; one on replicas alone is a question's way to leave options out."""
    return bool(limit.units if limit.kind is LimitKind.QUOTA else limit.units or limit.replicas)


def _cap_text(limit: Limit) -> tuple[str, float, float, EasingText]:
    """Name, step, grain and the words for easing it."""
    if limit.kind is LimitKind.POWER:
        name = f"the power limit of {limit.name} ({limit.at_most / W_PER_KW:.6g} kW)"
        return name, W_PER_KW, 0.0, lambda amount: f"{_up(amount / W_PER_KW, 3):g} kW more for {limit.name}"
    if limit.kind is LimitKind.BUDGET:
        return f"the budget ({limit.at_most:.2f} $/h)", 1.0, 0.0, lambda amount: f"{_up(amount, 2):.2f} $/h more budget"
    name = f"the quota {limit.name} ({plural(limit.at_most, 'GPU')})"
    smallest = min((weight for weight in limit.units.values() if weight > 0), default=1.0)
    return name, smallest, 1.0, lambda amount: f"{plural(amount, 'GPU')} more in the quota {limit.name}"


def _spot(problem: MixProblem, position: int) -> Requirement:
    """The limit counts `1 - share` for each GPU on the spot market, and `-share` for each elsewhere."""
    limit = problem.limits[position]
    slots = [supply.slots for supply in problem.supplies]
    share = min((1 - weight / slots[f] for f, weight in limit.units.items() if weight > 0), default=1.0)
    gpus = {
        f: weight / (1 - share) if weight > 0 else -weight / share if share else slots[f]
        for f, weight in limit.units.items()
    }

    def ease(eased: MixProblem, amount: float) -> MixProblem:
        known = eased.limits[position]
        weights = {f: weight - amount * gpus[f] for f, weight in known.units.items()}
        return _with_limit(eased, position, _void(known) if amount == inf else replace(known, units=weights))

    return Requirement(
        Kind.SPOT,
        f"the spot share (at most {share / PERCENT:.4g} % of all GPUs)",
        step=PERCENT,
        grain=PERCENT / 10,
        most=1.0 - share,
        ease=ease,
        easing=lambda amount: f"{(share + amount) / PERCENT:.4g} % of all GPUs on the spot market",
        slack=partial(_room, limit),
        position=position,
    )


def _min_replicas(problem: MixProblem, w: int) -> Requirement:
    name, fewest = problem.loads[w].name, problem.loads[w].min_replicas
    options = problem.options_of(w)

    def ease(eased: MixProblem, amount: float) -> MixProblem:
        left = 0 if amount == inf else max(0, eased.loads[w].min_replicas - round(amount))
        return _with_load(eased, w, min_replicas=left)

    return Requirement(
        Kind.MIN_REPLICAS,
        f"at least {plural(fewest, 'replica')} of {name}",
        step=1,
        grain=1,
        most=float(fewest),
        ease=ease,
        easing=lambda amount: f"{plural(amount, 'replica')} fewer required of {name}",
        slack=lambda _, replicas: sum(replicas[o] for o in options) - fewest,
        position=w,
    )


def _moves(problem: MixProblem) -> Iterator[Requirement]:
    allowed = ((Kind.STARTS, "max_started", "started", 1), (Kind.STOPS, "max_stopped", "stopped", -1))
    held = [option.held for option in problem.options]
    for kind, field, verb, sign in allowed:
        most: int | None = getattr(problem.change, field)
        if most is None:
            continue

        def slack(_: Sequence[int], replicas: Sequence[int], *, sign: int = sign, most: int = most) -> float:
            return most - sum(max(0, sign * (n - h)) for n, h in zip(replicas, held, strict=True))

        name = f"at most {plural(most, 'replica')} {verb}"
        yield Requirement(
            kind, name, 1, 1, inf, partial(_ease_moves, field=field), partial(_moves_text, verb=verb), slack
        )


def _ease_moves(problem: MixProblem, amount: float, *, field: str) -> MixProblem:
    known: int | None = getattr(problem.change, field)
    more = None if amount == inf or known is None else known + round(amount)
    changes: dict[str, Any] = {field: more}
    return replace(problem, change=replace(problem.change, **changes))


def _moves_text(amount: float, *, verb: str) -> str:
    return f"{plural(amount, 'replica')} more {verb}"


def _survival(problem: MixProblem) -> Iterator[Requirement]:
    """The loss of any one node is one requirement; each zone is one of its own."""
    zones = {loss.name: loss for loss in problem.losses if None in loss.lost.values()}
    nodes = frozenset(loss.name for loss in problem.losses) - zones.keys()
    groups = [(Kind.NODE_LOSS, nodes, "surviving the loss of any one node")] if nodes else []
    groups += [(Kind.ZONE_LOSS, frozenset({name}), f"surviving the loss of {name}") for name in zones]
    for kind, names, words in groups:
        ease = partial(_forget_losses, names=names)
        yield Requirement(kind, words, inf, inf, 0.0, ease, partial(_not, words=words))


def _forget_losses(problem: MixProblem, _: float, *, names: frozenset[str]) -> MixProblem:
    return replace(problem, losses=tuple(loss for loss in problem.losses if loss.name not in names))


def _not(_: float, *, words: str) -> str:
    return f"not {words}"


def _margins(problem: MixProblem) -> Iterator[Requirement]:
    """What is held back against erring profiles and against busy times."""
    if erring := problem.erring_buckets:
        yield Requirement(
            Kind.ERRING,
            f"holding when {plural(erring, 'request size')} per option err",
            step=1,
            grain=1,
            most=float(erring),
            ease=lambda eased, amount: replace(
                eased, erring_buckets=0 if amount == inf else max(0, eased.erring_buckets - round(amount))
            ),
            easing=lambda amount: f"{plural(amount, 'erring request size')} fewer",
        )
    fullest = min((load.utilisation for load in problem.loads), default=1.0)
    if fullest < 1:
        yield Requirement(
            Kind.HEADROOM,
            f"replicas filled to {fullest / PERCENT:.4g} % at most",
            step=min(PERCENT, 1 - fullest),
            grain=PERCENT / 10,
            most=1 - fullest,
            ease=_fill_more,
            easing=lambda amount: f"replicas filled to {(fullest + amount) / PERCENT:.4g} %",
        )


def _fill_more(problem: MixProblem, amount: float) -> MixProblem:
    def filled(utilisation: float) -> float:
        return max(utilisation, min(1.0, utilisation + amount))

    loads = (replace(load, utilisation=filled(load.utilisation)) for load in problem.loads)
    return replace(problem, loads=tuple(loads))


def _room(limit: Limit, units: Sequence[int], replicas: Sequence[int]) -> float:
    used = sum(weight * units[f] for f, weight in limit.units.items())
    return limit.at_most - used - sum(weight * replicas[o] for o, weight in limit.replicas.items())


def _raised(limit: Limit, amount: float) -> Limit:
    return replace(limit, at_most=limit.at_most + amount)


def _void(limit: Limit) -> Limit:
    """A limit on nothing: positions stay as they are."""
    return replace(limit, units={}, replicas={})


def _with_limit(problem: MixProblem, position: int, limit: Limit) -> MixProblem:
    return replace(problem, limits=_put(problem.limits, position, limit))


def _with_load(problem: MixProblem, w: int, **changes: Any) -> MixProblem:
    return replace(problem, loads=_put(problem.loads, w, replace(problem.loads[w], **changes)))


def _put(items: tuple[Any, ...], position: int, item: Any) -> tuple[Any, ...]:
    return (*items[:position], item, *items[position + 1 :])


def _up(amount: float, decimals: int) -> float:
    """Rounded so that the amount said still does."""
    scale = 10.0**decimals
    return -(-(amount - 1e-9) * scale // 1) / scale
