"""The requirements of a request: each has a name and can be relaxed by an amount or dropped.

A price is the gain of relaxing one of them by a step; a conflict is a set of them that cannot all hold.  A relaxed
requirement never makes a feasible problem infeasible.
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
    """The kinds of requirements."""

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
Slack = Callable[[Sequence[int], Sequence[int]], float]  # counts of units and of replicas
EasingText = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement.  Amounts are in its own unit: units, GPUs, W, $/h, replicas, or shares of 1."""

    kind: Kind
    name: str  # with its figure
    step: float  # the amount of one step; infinite for a requirement that cannot hold in part
    grain: float  # the resolution of amounts; 0 for any
    most: float  # the amount that removes it; infinite if none does
    ease: Ease  # relaxes it by an amount; an infinite amount drops it
    easing: EasingText  # describes the relaxation by an amount
    slack: Slack | None = None  # the distance of counts from the limit; None if counts do not determine it
    position: int = 0  # index of its workload, supply or limit

    def dropped(self, problem: MixProblem) -> MixProblem:
        return self.ease(problem, inf)


def requirements(problem: MixProblem) -> tuple[Requirement, ...]:
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
    for requirement in dropped:
        problem = requirement.dropped(problem)
    return problem


def plural(count: float, noun: str) -> str:
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
        return _with_limit(
            eased, position, _void(known) if amount == inf else replace(known, at_most=known.at_most + amount)
        )

    kind = Kind(limit.kind)
    slack = partial(_slack, limit)
    return Requirement(
        kind, name, step=step, grain=grain, most=inf, ease=ease, easing=easing, slack=slack, position=position
    )


def _is_requested(limit: Limit) -> bool:
    """Whether the request states the limit; `avoiding` adds quotas on replicas alone."""
    return bool(limit.units if limit.kind is LimitKind.QUOTA else limit.units or limit.replicas)


def _cap_text(limit: Limit) -> tuple[str, float, float, EasingText]:
    """Name, step, grain and description of the relaxation."""
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
        slack=partial(_slack, limit),
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
    """The loss of any one node is one requirement; the loss of each zone is another."""
    zones = {loss.name: loss for loss in problem.losses if None in loss.lost.values()}
    nodes = frozenset(loss.name for loss in problem.losses) - zones.keys()
    groups = [(Kind.NODE_LOSS, nodes, "surviving the loss of any one node")] if nodes else []
    groups += [(Kind.ZONE_LOSS, frozenset({name}), f"surviving the loss of {name}") for name in zones]
    for kind, names, text in groups:
        ease = partial(_without_losses, names=names)
        yield Requirement(kind, text, inf, inf, 0.0, ease, partial(_not, text=text))


def _not(_: float, *, text: str) -> str:
    return f"not {text}"


def _without_losses(problem: MixProblem, _: float, *, names: frozenset[str]) -> MixProblem:
    return replace(problem, losses=tuple(loss for loss in problem.losses if loss.name not in names))


def _margins(problem: MixProblem) -> Iterator[Requirement]:
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


def _slack(limit: Limit, units: Sequence[int], replicas: Sequence[int]) -> float:
    used = sum(weight * units[f] for f, weight in limit.units.items())
    return limit.at_most - used - sum(weight * replicas[o] for o, weight in limit.replicas.items())


def _void(limit: Limit) -> Limit:
    """A limit without weights, so that the other limits keep their positions."""
    return replace(limit, units={}, replicas={})


def _with_limit(problem: MixProblem, position: int, limit: Limit) -> MixProblem:
    return replace(problem, limits=_put(problem.limits, position, limit))


def _with_load(problem: MixProblem, w: int, **changes: Any) -> MixProblem:
    return replace(problem, loads=_put(problem.loads, w, replace(problem.loads[w], **changes)))


def _put(items: tuple[Any, ...], position: int, item: Any) -> tuple[Any, ...]:
    return (*items[:position], item, *items[position + 1 :])


def _up(amount: float, decimals: int) -> float:
    """Rounded up, so that the stated amount suffices."""
    scale = 10.0**decimals
    return -(-(amount - 1e-9) * scale // 1) / scale
