"""The candidates of a request: the options given in it, or those found among the offers."""

from collections.abc import Hashable, Iterable, Iterator, Sequence

from fleet.catalogues import folded
from fleet.documents import Path, dotted
from fleet.errors import DocumentError, Problem, UnknownNameError
from fleet.gpus import GpuCatalogue, GpuSpec, unknown_gpus
from fleet.models import ModelCatalogue
from fleet.offers import Offer
from planner.expert_loads import model_violations
from planner.options.dominance import CostFactors, undominated_offers
from planner.options.enumeration import FULL_CLOCK, ConfigSpace
from planner.options.rule_scopes import (
    Rule,
    covers,
    footprint_of,
    rule_violations,
    unknown_options,
    uptime,
    zone_of,
)
from planner.options.search import Candidate, Placed, Search
from planner.options.variants import Estimator, Measurements, VariantTable
from planner.performance.rates import highest_rates
from planner.policy import Failure
from planner.problem import Supply
from planner.profiles import Profiles
from planner.request import MAX_SHARES, GivenOption, PlanRequest, Workload
from planner.throughput import Throughput, ThroughputSource
from power.curves import power_curve

REQUEST = "request"

Violations = Iterable[tuple[Path, str]]


def candidates(
    request: PlanRequest,
    *,
    gpus: GpuCatalogue,
    models: ModelCatalogue,
    offers: tuple[Offer, ...],
    estimator: Estimator = highest_rates,
    profiles: Profiles | None = None,
) -> tuple[Candidate, ...]:
    """All options that an optimal mix may need.  DocumentError names what cannot be planned."""
    usable = [offer for offer in offers if offer.market in request.markets]
    _refuse([*unknown_gpu_names(request, gpus=gpus, offers=offers), *rule_violations(request, offers)])
    placed = [(offer, gpus.get(offer.gpu)) for offer in _needed(request, usable, gpus=gpus)]
    _refuse(_oversize(request, placed))
    found: list[Candidate] = []
    problems: list[Problem] = []
    for position, workload in enumerate(request.workloads):
        found += [_given(position, workload, option, gpus=gpus) for option in workload.options or ()]
        try:
            search = _search(request, position, models=models, estimator=estimator, profiles=profiles)
        except DocumentError as error:
            problems += error.problems
            continue
        if search is not None:
            found += search.run(placed)
            problems += map(_problem, search.violations())
    if problems:
        raise DocumentError(name=REQUEST, problems=problems)
    names = [(request.workloads[candidate.workload].name, candidate.name) for candidate in found]
    _refuse([*_too_many(request, found), *unknown_options(request, names)])
    return tuple(scaled(request, found))


def scaled(request: PlanRequest, found: Iterable[Candidate]) -> Iterator[Candidate]:
    """The candidates with the corrections of the request on their rates."""
    factors = {(scale.workload, folded(scale.gpu)): scale.factor for scale in request.rate_scales}
    for candidate in found:
        workload = request.workloads[candidate.workload].name
        factor = next((factors[workload, gpu] for gpu in candidate.folded_gpu_names if (workload, gpu) in factors), 1.0)
        yield candidate if factor == 1.0 else candidate.scaled(factor)


def cost_factors_of(request: PlanRequest) -> CostFactors:
    change = request.policy.change
    return CostFactors(
        power=bool(request.power_domains) or request.policy.goal.counts_power,
        moves=request.policy.goal.counts_switching or change.max_started is not None or change.max_stopped is not None,
        nodes=Failure.NODE in request.policy.survive,
    )


def _needed(request: PlanRequest, offers: list[Offer], *, gpus: GpuCatalogue) -> list[Offer]:
    running = [entry.option for entry in request.current or ()]
    rules: tuple[Rule, ...] = (*request.quotas, *request.power_domains)

    def traits(offer: Offer) -> Hashable:
        names = gpus.get(offer.gpu).folded_names
        return (
            offer.market,
            offer.commitment_h,
            uptime(request, offer),
            request.policy.goal.weight_of_w(footprint_of(request, offer)),
            zone_of(offer) if Failure.ZONE in request.policy.survive else None,
            tuple(covers(rule, name=offer.id, offer=offer, gpu_names=names) for rule in rules),
        )

    def pinned(offer: Offer) -> bool:
        return any(option.startswith(f"{offer.id}/") for option in running)

    return undominated_offers(offers, cost_factors=cost_factors_of(request), traits=traits, pinned=pinned)


def _search(
    request: PlanRequest, position: int, *, models: ModelCatalogue, estimator: Estimator, profiles: Profiles | None
) -> Search | None:
    workload = request.workloads[position]
    if workload.options is not None or workload.model is None or workload.slo is None:
        return None
    try:
        model = models.get(workload.model)
    except UnknownNameError as error:
        raise DocumentError(
            name=REQUEST, problems=[_problem((("workloads", position, "model"), str(error)))]
        ) from error

    if workload.expert_loads is not None:
        at = "workloads", position, "expert_loads"
        _refuse(((*at, *path), message) for path, message in model_violations(workload.expert_loads, model))

    def config_space(gpu: GpuSpec) -> ConfigSpace:
        return ConfigSpace(
            workload.precisions,
            workload.kv_precisions,
            _levels(request, gpu),
            redundant_experts=_redundant_experts(workload),
        )

    held = frozenset(entry.option for entry in request.current or () if entry.workload == workload.name)
    measured = None if profiles is None else Measurements(profiles, workload.buckets, workload.slo)
    table = VariantTable(workload, model, workload.slo, estimator, measured)
    return Search(position, table, config_space, cost_factors_of(request), held)


def _redundant_experts(workload: Workload) -> tuple[int, ...] | None:
    """Those of the request; by default, with recorded loads, none or one more per GPU."""
    if workload.redundant_experts is not None:
        return workload.redundant_experts
    return (0, 1) if workload.expert_loads is not None else None


def _levels(request: PlanRequest, gpu: GpuSpec) -> tuple[float, ...]:
    """Those of the request; by default the full clock, and with power domains the levels of the power curve."""
    if request.power_levels is not None:
        return request.power_levels
    return power_curve(gpu).levels if request.power_domains else (FULL_CLOCK,)


def _given(position: int, workload: Workload, option: GivenOption, *, gpus: GpuCatalogue) -> Candidate:
    throughput = Throughput(
        max_rps=option.max_rps, provenance=ThroughputSource.GIVEN, interval_note="the request states no interval"
    )
    supply = Supply(f"{workload.name}/{option.name}", option.price_usd_per_h, available=option.available)
    return Candidate(
        position, option.name, gpus.index.get(folded(option.gpu)), option.gpus, throughput, supply, given_gpu=option.gpu
    )


def unknown_gpu_names(request: PlanRequest, *, gpus: GpuCatalogue, offers: tuple[Offer, ...]) -> Violations:
    """A given option needs no data sheet, unless the request counts its power."""
    given = {folded(option.gpu) for workload in request.workloads for option in workload.options or ()}
    mentions: list[tuple[Path, str]] = [
        (("offers", position, "gpu"), offer.gpu) for position, offer in enumerate(offers)
    ]
    mentions += [
        (("quotas", position, "gpu"), quota.gpu)
        for position, quota in enumerate(request.quotas)
        if quota.gpu and folded(quota.gpu) not in given
    ]
    measured = request.profiles.unknown_gpus(gpus) if request.profiles is not None else ()
    return [
        *_unlisted_power(request, gpus=gpus),
        *unknown_gpus(mentions, gpus),
        *((("profiles", *path), message) for path, message in measured),
    ]


def _unlisted_power(request: PlanRequest, *, gpus: GpuCatalogue) -> Iterator[tuple[Path, str]]:
    """Given options whose power counts, although no data sheet of their GPU is known."""
    for w, workload in enumerate(request.workloads):
        for o, option in enumerate(workload.options or ()):
            name = f"{workload.name}/{option.name}"
            needs = [f"the objective {request.policy.goal}"] if request.policy.goal.counts_power else []
            needs += [
                f"power domain {domain.name}"
                for domain in request.power_domains
                if domain.members is None or name in domain.members
            ]
            if needs:
                at: Path = ("workloads", w, "options", o, "gpu")
                for path, reason in unknown_gpus([(at, option.gpu)], gpus):
                    yield path, f"{reason}; {needs[0]} needs its data sheet"
                gpu = gpus.index.get(folded(option.gpu))
                if gpu is not None and gpu.tdp_w is None:
                    yield at, f"no source states tdp_w of GPU {gpu.name!r}; {needs[0]} needs it"


def _oversize(request: PlanRequest, placed: Sequence[Placed]) -> Iterator[tuple[Path, str]]:
    """Refuses before anything is estimated: there is at least one option per offer."""
    searched = [workload for workload in request.workloads if workload.options is None]
    yield from _beyond(sum(len(placed) * len(workload.bucket_rates_rps()) for workload in searched))


def _too_many(request: PlanRequest, found: Sequence[Candidate]) -> Iterator[tuple[Path, str]]:
    """Routes times buckets, the size of the MIP."""
    buckets = [len(workload.bucket_rates_rps()) for workload in request.workloads]
    routes = ((candidate.role == "both") + len(candidate.decode_targets) for candidate in found)
    yield from _beyond(sum(count * buckets[candidate.workload] for count, candidate in zip(routes, found, strict=True)))


def _beyond(shares: int) -> Iterator[tuple[Path, str]]:
    if shares > MAX_SHARES:
        advice = "name fewer offers, precisions, power levels or size edges"
        yield ("workloads",), f"options times buckets come to {shares:,}, expected at most {MAX_SHARES:,}: {advice}"


def _refuse(violations: Violations) -> None:
    if problems := list(map(_problem, violations)):
        raise DocumentError(name=REQUEST, problems=problems)


def _problem(violation: tuple[Path, str]) -> Problem:
    path, message = violation
    return Problem(dotted(path), message)
