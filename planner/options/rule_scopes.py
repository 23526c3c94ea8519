"""The offers and given options that a quota, a power domain or a failure covers.

Rules name an offer by its id and a given option by `workload/option`: the names of the mix problem's supplies.
"""

from collections.abc import Collection, Iterator, Sequence

from fleet.catalogues import folded
from fleet.documents import Violation
from fleet.errors import nearest_names
from fleet.offers import Market, Offer
from planner.objectives import Footprint
from planner.policy import Failure, PowerDomainLimit, Quota
from planner.request import PlanRequest

MINUTES_PER_H = 60.0
MAX_NAMED = 8  # known names in one error

Rule = Quota | PowerDomainLimit


def covers(rule: Rule, *, name: str, offer: Offer | None, gpu_names: Collection[str]) -> bool:
    """Whether a rule covers a supply.  A given option has no region."""
    if rule.members is not None and name not in rule.members:
        return False
    if isinstance(rule, PowerDomainLimit):
        return True
    if rule.gpu is not None and folded(rule.gpu) not in gpu_names:
        return False
    where = ("", "") if offer is None else (offer.provider, offer.region)
    return all(wanted in {None, found} for wanted, found in zip((rule.provider, rule.region), where, strict=True))


def uptime(request: PlanRequest, offer: Offer | None) -> float:
    """The share of the time that an instance is available: an alternating renewal of interruptions and recoveries."""
    if offer is None or offer.market is not Market.SPOT:
        return 1.0
    spot = request.policy.spot
    stated = offer.interruption_rate_per_h
    rate_per_h = spot.interruption_rate_per_h if stated is None else stated
    return 1 / (1 + rate_per_h * spot.recovery_min / MINUTES_PER_H)


def footprint_of(request: PlanRequest, offer: Offer | None) -> Footprint:
    """The footprint of 1 kWh in an offer's region; the request's defaults without an offer."""
    region = None if offer is None else offer.region
    return Footprint(carbon_g_per_kwh=0.0 if request.carbon is None else request.carbon.intensity_g_per_kwh(region))


def zone_of(offer: Offer) -> str:
    """Offers of a region without a zone form one zone."""
    return "/".join((offer.provider, offer.region, offer.zone or "zone not stated"))


def rule_violations(request: PlanRequest, offers: Sequence[Offer]) -> Iterator[Violation]:
    """Unknown names in rules, and rules without what they require."""
    yield from _unknown_places(request, offers)
    known = {offer.id for offer in offers}
    known |= {f"{workload.name}/{option.name}" for workload in request.workloads for option in workload.options or ()}
    named: dict[str, Sequence[Rule]] = {"quotas": request.quotas, "power_domains": request.power_domains}
    for field, rules in named.items():
        for position, rule in enumerate(rules):
            for number, member in enumerate(rule.members or ()):
                if member not in known:
                    yield (field, position, "members", number), f"unknown name {member!r}{_nearest(member, known)}"
    change = request.policy.change
    if request.current is None and (change.max_started is not None or change.max_stopped is not None):
        yield ("current",), "is required if policy.change limits starts or stops; [] if nothing runs"
    if Failure.ZONE in request.policy.survive:
        for position, workload in enumerate(request.workloads):
            if workload.options is not None:
                at = ("workloads", position, "options")
                yield at, "given options have no zone, so the loss of a zone cannot be survived"


def _unknown_places(request: PlanRequest, offers: Sequence[Offer]) -> Iterator[Violation]:
    """A quota on a misspelt provider or region would cap nothing."""
    providers, regions = {offer.provider for offer in offers}, {offer.region for offer in offers}
    for position, quota in enumerate(request.quotas):
        for field, name, known in (("provider", quota.provider, providers), ("region", quota.region, regions)):
            if name is not None and name not in known:
                yield ("quotas", position, field), f"no offer is of {field} {name!r}{_nearest_or_all(name, known)}"
    named: dict[tuple[str, str], Collection[str]] = {
        ("carbon", "regions_g_per_kwh"): () if request.carbon is None else request.carbon.regions_g_per_kwh,
    }
    for at, names in named.items():
        for name in names:
            if name not in regions:
                yield (*at, name), f"no offer is of region {name!r}{_nearest_or_all(name, regions)}"


def unknown_options(request: PlanRequest, names: Sequence[tuple[str, str]]) -> Iterator[Violation]:
    for position, running in enumerate(request.current or ()):
        if (running.workload, running.option) not in names:
            known = [option for workload, option in names if workload == running.workload]
            message = f"{running.workload} has no option {running.option!r}{_nearest(running.option, known)}"
            yield ("current", position, "option"), message


def _nearest_or_all(name: str, known: set[str]) -> str:
    return _nearest(name, known) or f", expected one of {', '.join(sorted(known)[:MAX_NAMED]) or 'none'}"


def _nearest(name: str, known: Sequence[str] | set[str]) -> str:
    nearest = nearest_names(name, known)
    return f"; nearest: {', '.join(nearest)}" if nearest else ""
