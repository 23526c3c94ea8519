"""Removes options that no optimal mix needs.

docs/explanation/planner/options.md has the method. The rules are exact: the optimum is the same.

- If starts or stops count, one replica must replace one, and running options are kept.
- If the loss of a node must be survived, spare GPUs of the dominated option's nodes hold more replicas.  These cost
  nothing in $/h, but power and starts; if those count too, nothing is removed.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fleet.offers import Offer


@dataclass(frozen=True, slots=True)
class CostFactors:
    """The quantities that a request counts besides price."""

    power: bool = False  # in the objective or a power domain
    moves: bool = False  # replicas started or stopped
    nodes: bool = False  # their loss must be survived

    @property
    def allows_removal(self) -> bool:
        return not (self.nodes and (self.power or self.moves))


class Rated(Protocol):
    """The properties of a variant that the rules compare."""

    @property
    def gpus(self) -> int: ...

    @property
    def rates_rps(self) -> Sequence[float]: ...  # per bucket, 0 where it cannot serve

    @property
    def worst_rps(self) -> Sequence[float]: ...

    @property
    def idle_w(self) -> float: ...

    @property
    def busy_w(self) -> float: ...

    @property
    def limit_w(self) -> float: ...  # what a power domain counts for it


RatedT = TypeVar("RatedT", bound=Rated)


def undominated(
    variants: Iterable[RatedT], *, cost_factors: CostFactors, pinned: Callable[[RatedT], bool]
) -> list[RatedT]:
    """Those that an optimal mix may need, in their order; the first of equals.  Pinned ones stay."""
    found = list(variants)
    if not cost_factors.allows_removal:
        return found
    return [
        b
        for position, b in enumerate(found)
        if pinned(b)
        or not any(
            dominates(a, b, cost_factors=cost_factors)
            and (other < position or not dominates(b, a, cost_factors=cost_factors))
            for other, a in enumerate(found)
            if other != position
        )
    ]


def dominates(a: Rated, b: Rated, *, cost_factors: CostFactors) -> bool:
    """Whether replicas of `a` on the GPUs of one of `b` replace it."""
    times, rest = divmod(b.gpus, a.gpus)
    if rest or (times != 1 and (cost_factors.moves or cost_factors.nodes)):
        return False
    serves = all(times * ours >= theirs for ours, theirs in zip(a.rates_rps, b.rates_rps, strict=True))
    holds = all(times * ours >= theirs for ours, theirs in zip(a.worst_rps, b.worst_rps, strict=True))
    return serves and holds and (not cost_factors.power or _draws_no_more(a, b, times=times))


def undominated_offers(
    offers: Iterable[Offer],
    *,
    cost_factors: CostFactors,
    traits: Callable[[Offer], Hashable],
    pinned: Callable[[Offer], bool],
) -> list[Offer]:
    """Offers that an optimal mix may need, in their order.  `traits` are the properties that rules use."""
    found = list(offers)
    if not cost_factors.allows_removal:
        return found
    ceiling: dict[Hashable, tuple[float, int]] = {}  # per kind, the cheapest without a limit, the first of equals
    kinds = [(offer.gpu, offer.gpus_per_instance, traits(offer)) for offer in found]
    for position, (kind, offer) in enumerate(zip(kinds, found, strict=True)):
        if offer.limit is None:
            ceiling[kind] = min(ceiling.get(kind, (offer.price_usd_per_h, position)), (offer.price_usd_per_h, position))
    return [
        offer
        for position, (kind, offer) in enumerate(zip(kinds, found, strict=True))
        if pinned(offer) or kind not in ceiling or (offer.price_usd_per_h, position) <= ceiling[kind]
    ]


def _draws_no_more(a: Rated, b: Rated, *, times: int) -> bool:
    if times * a.idle_w > b.idle_w or times * a.limit_w > b.limit_w:
        return False
    ours, theirs = max(0.0, a.busy_w - a.idle_w), max(0.0, b.busy_w - b.idle_w)
    return all(
        ours * their_rate <= theirs * our_rate
        for our_rate, their_rate in zip(a.rates_rps, b.rates_rps, strict=True)
        if their_rate > 0
    )
