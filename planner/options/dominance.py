"""Leaving out what no best mix needs: exact rules, so that the optimum with and without them is the same.

Variants of one GPU type and one instance size share every supply they are offered on.  Variant `a` makes `b` needless
when `k = gpus(b) / gpus(a)` is whole and `k` replicas of `a` do all that one of `b` does: carry as much of every bucket
at the expected and at the worst rate and, where power counts, draw no more, idle, per request and on a feed.  Any mix
with `b` then stays as good with `k` of `a` for each: capacities add up, and protection against erring profiles, taken
once over both, is at most the sum.

- Where starting and stopping is counted, only `k = 1` will do, and what runs now is never left out.
- Where the loss of a node must be survived, `b`'s nodes are filled up with `a`: free in $/h, not in W or in starts, so
  with either of those nothing is left out.

An offer makes an equal one needless when it is no dearer and nothing limits it; equal means that no rule of the request
can tell them apart.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fleet.offers import Offer


@dataclass(frozen=True, slots=True)
class CostFactors:
    """What a request counts beside price."""

    power: bool = False  # by its goal or on a feed
    moves: bool = False  # replicas started or stopped
    nodes: bool = False  # their loss must be survived

    @property
    def allows_removal(self) -> bool:
        """Whether anything may be left out at all."""
        return not (self.nodes and (self.power or self.moves))


class Rated(Protocol):
    """What the rules look at in a variant."""

    @property
    def gpus(self) -> int:
        """Of one replica."""
        ...

    @property
    def rates_rps(self) -> Sequence[float]:
        """Per bucket, 0 where it cannot serve."""
        ...

    @property
    def worst_rps(self) -> Sequence[float]:
        """The same if the profile errs to the bad side."""
        ...

    @property
    def idle_w(self) -> float:
        """Of a replica without load."""
        ...

    @property
    def busy_w(self) -> float:
        """At full load."""
        ...

    @property
    def limit_w(self) -> float:
        """What a feed must carry for it."""
        ...


RatedT = TypeVar("RatedT", bound=Rated)


def undominated(
    variants: Iterable[RatedT], *, cost_factors: CostFactors, pinned: Callable[[RatedT], bool]
) -> list[RatedT]:
    """Those that a best mix may need, in their order; of equals the first.  What is pinned stays."""
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
    """Whether replicas of `a` on the GPUs of one of `b` do all that it does."""
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
    """Offers that a best mix may need, in their order.  `traits` holds all that a rule of the request may look at."""
    found = list(offers)
    if not cost_factors.allows_removal:
        return found
    ceiling: dict[Hashable, tuple[float, int]] = {}  # per kind the cheapest without a limit, the first of equals
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
