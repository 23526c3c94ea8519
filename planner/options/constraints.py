"""The request's rules on the whole mix, as limits and losses of the mix problem."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fleet.offers import Market
from planner.options.rule_scopes import Rule, covers, zone_of
from planner.options.search import Candidate, known_power
from planner.policy import Failure
from planner.problem import Change, Limit, LimitKind, Loss, ReplicaOption, Supply
from planner.request import PlanRequest


@dataclass(frozen=True)
class ProblemParts:
    """Parts of a mix problem under construction; options are in the order of the candidates."""

    candidates: Sequence[Candidate]
    options: tuple[ReplicaOption, ...]
    supplies: tuple[Supply, ...]

    @cached_property
    def behind(self) -> dict[int, Candidate]:
        """Supply -> one of its candidates."""
        return {option.supply: candidate for option, candidate in zip(self.options, self.candidates, strict=True)}

    def gpus_per_unit(self, supply: int) -> float:
        candidate = self.behind[supply]
        return float(candidate.gpus if candidate.offer is None else candidate.supply.slots)

    def covered_supplies(self, rule: Rule) -> list[int]:
        return [
            f
            for f, c in self.behind.items()
            if covers(rule, name=c.supply.name, offer=c.offer, gpu_names=c.folded_gpu_names)
        ]

    def covered_options(self, rule: Rule) -> list[int]:
        supplies = set(self.covered_supplies(rule))
        return [o for o, option in enumerate(self.options) if option.supply in supplies]


def limits(request: PlanRequest, parts: ProblemParts) -> Iterator[Limit]:
    for quota in request.quotas:
        gpus = {f: parts.gpus_per_unit(f) for f in parts.covered_supplies(quota)}
        yield Limit(quota.name, LimitKind.QUOTA, quota.gpus, units=gpus)
    for domain in request.power_domains:
        watts = {o: known_power(parts.candidates[o]).limit_w for o in parts.covered_options(domain)}
        yield Limit(domain.name, LimitKind.POWER, domain.limit_w, replicas=watts)
    yield from _spot_share(request.policy.spot.max_share, parts)
    if (budget := request.policy.budget_usd_per_h) is not None:
        prices = {f: supply.price_usd_per_h for f, supply in enumerate(parts.supplies)}
        yield Limit("budget", LimitKind.BUDGET, budget, units=prices)


def losses(request: PlanRequest, parts: ProblemParts) -> Iterator[Loss]:
    """Failures to survive.  A node is an instance, or a replica of a given option.

    A replica over several instances fails with any of them.
    """
    if Failure.NODE in request.policy.survive:
        for o, option in enumerate(parts.options):
            per_node = max(1, parts.supplies[option.supply].slots // option.slots)
            yield Loss(f"a node of {option.name}", {o: per_node})
    if Failure.ZONE in request.policy.survive:
        zones: dict[str, dict[int, int | None]] = {}
        for o, candidate in enumerate(parts.candidates):
            if candidate.offer is not None:
                zones.setdefault(zone_of(candidate.offer), {})[o] = None
        yield from (Loss(f"zone {zone}", lost) for zone, lost in zones.items())


def change(request: PlanRequest) -> Change:
    policy = request.policy.change
    return Change(
        max_started=policy.max_started,
        max_stopped=policy.max_stopped,
        start_usd_per_h=policy.start_usd / policy.lasting_h,
        stop_usd_per_h=policy.stop_usd / policy.lasting_h,
    )


def held(request: PlanRequest) -> dict[tuple[str, str], int]:
    """(workload, option) -> replicas that run now."""
    counts: dict[tuple[str, str], int] = {}
    for running in request.current or ():
        key = running.workload, running.option
        counts[key] = counts.get(key, 0) + running.replicas
    return counts


def _spot_share(share: float, parts: ProblemParts) -> Iterator[Limit]:
    """Spot GPUs are at most this share of all: `Σ_spot (1 - share) - Σ_rest share <= 0`."""
    spot = {f for f, c in parts.behind.items() if c.offer is not None and c.offer.market is Market.SPOT}
    if spot and share < 1:
        weights = {f: ((1 - share) if f in spot else -share) * parts.gpus_per_unit(f) for f in parts.behind}
        yield Limit("spot share", LimitKind.SPOT, 0.0, units=weights)
