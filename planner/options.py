"""Every way to run a replica of each workload: the options given outright, or those found among the offers."""

from collections.abc import Iterable, Iterator

from fleet.documents import Path, dotted
from fleet.errors import DocumentError, Problem, UnknownNameError
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import Offer
from fleet.references import unknown_gpus
from fleet.slo import Slo, Statistic
from planner.problem import Supply
from planner.request import MAX_SHARES, GivenOption, PlanRequest, Workload
from planner.search import Candidate, Search, degrees
from planner.throughput import Provenance, Throughput

REQUEST = "request"

Flaws = Iterable[tuple[Path, str]]


def candidates(
    request: PlanRequest, *, gpus: GpuCatalogue, models: ModelCatalogue, offers: tuple[Offer, ...]
) -> tuple[Candidate, ...]:
    """All of them.  DocumentError names every GPU, model, statistic or bucket that cannot be planned."""
    usable = tuple(offer for offer in offers if offer.market in request.markets)
    _refuse([*_unknown_gpus(request, gpus=gpus, offers=offers), *_oversize(request, usable)])
    found: list[Candidate] = []
    problems: list[Problem] = []
    for position, workload in enumerate(request.workloads):
        found += [_given(position, workload, option, gpus=gpus) for option in workload.options or ()]
        try:
            search = _search(position, workload, models=models)
        except DocumentError as error:
            problems += error.problems
            continue
        if search is not None:
            found += search.run((offer, gpus.get(offer.gpu)) for offer in usable)
            problems += map(_problem, search.flaws())
    if problems:
        raise DocumentError(name=REQUEST, problems=problems)
    return tuple(found)


def _search(position: int, workload: Workload, *, models: ModelCatalogue) -> Search | None:
    """How to find the options of a workload that brings none."""
    if workload.options is not None or workload.model is None or workload.slo is None:
        return None
    _refuse(_percentiles(position, workload.slo))
    try:
        return Search(position, workload, models.get(workload.model), workload.slo)
    except UnknownNameError as error:
        raise DocumentError(
            name=REQUEST, problems=[_problem((("workloads", position, "model"), str(error)))]
        ) from error


def _given(position: int, workload: Workload, option: GivenOption, *, gpus: GpuCatalogue) -> Candidate:
    throughput = Throughput(
        max_rps=option.max_rps, provenance=Provenance.GIVEN, interval_note="the request states no interval"
    )
    supply = Supply(f"{workload.name}/{option.name}", option.price_usd_per_h, available=option.available)
    return Candidate(position, option.name, gpus.get(option.gpu), option.gpus, throughput, supply)


def _percentiles(position: int, slo: Slo) -> Iterator[tuple[Path, str]]:
    for metric, statistic, _ in slo.limits():
        if statistic is not Statistic.MEAN:
            at = ("workloads", position, "slo", str(metric), str(statistic))
            yield at, "only means are predicted: limit the mean, or give options with their measured max_rps"


def _unknown_gpus(request: PlanRequest, *, gpus: GpuCatalogue, offers: tuple[Offer, ...]) -> Flaws:
    mentions: list[tuple[Path, str]] = [
        (("workloads", w, "options", o, "gpu"), option.gpu)
        for w, workload in enumerate(request.workloads)
        for o, option in enumerate(workload.options or ())
    ]
    mentions += [(("offers", position, "gpu"), offer.gpu) for position, offer in enumerate(offers)]
    return unknown_gpus(mentions, gpus)


def _oversize(request: PlanRequest, offers: tuple[Offer, ...]) -> Iterator[tuple[Path, str]]:
    found = sum(1 for offer in offers for _ in degrees(offer))
    shares = sum(
        (found if workload.options is None else len(workload.options)) * len(workload.bucket_rates_rps())
        for workload in request.workloads
    )
    if shares > MAX_SHARES:
        yield ("workloads",), f"options times buckets come to {shares:,}, expected at most {MAX_SHARES:,}"


def _refuse(flaws: Flaws) -> None:
    if problems := list(map(_problem, flaws)):
        raise DocumentError(name=REQUEST, problems=problems)


def _problem(flaw: tuple[Path, str]) -> Problem:
    path, message = flaw
    return Problem(dotted(path), message)
