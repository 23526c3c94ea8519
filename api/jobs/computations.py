"""Defines computations over HTTP whose result only their job keeps: what each job reads, and how its process computes.

`api.server.routes.computations` builds the route of each from its `Computation`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, Generic

from pydantic import BaseModel

from api.jobs.body import read_body
from api.jobs.catalogues import catalogue_texts, gpus_of, models_of, topology_of
from api.jobs.outcome import Report, Solved, Task, refuse
from api.jobs.paths import paths_of
from api.schemas.documents import DocumentKind
from api.schemas.fault_paths import PathsRequest, PathsResponse
from api.schemas.results import RequestT
from api.store import Transaction
from placement.drift_request import Assessment, DriftRequest
from planner.performance.coefficients import Coefficients
from planner.performance.fit_request import FitRequest
from planner.profiles.import_request import ImportedProfiles, ImportRequest
from power.forecast.report import DayAhead, ForecastRequest, ReadingsForecast, forecast_power


async def _nothing(_tx: Transaction) -> Mapping[str, Any]:
    return {}


def _documents(*kinds: DocumentKind) -> Callable[[Transaction], Awaitable[Mapping[str, Any]]]:
    async def gather(tx: Transaction) -> Mapping[str, Any]:
        return await catalogue_texts(tx, *kinds)

    return gather


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation(Generic[RequestT]):
    name: str  # of its jobs
    path: str  # below `/v1/`
    tag: str
    operation: str
    title: str
    text: str
    request: type[RequestT]
    response: Any  # the type of the result
    compute: Callable[[RequestT, Task, Report], BaseModel]  # in the job's process
    gather: Callable[[Transaction], Awaitable[Mapping[str, Any]]] = _nothing  # what `compute` reads, from the store

    def run(self, task: Task, report: Report) -> Solved:
        """Read the request, compute, and write the result."""
        report("reading the request", None)
        request = read_body(self.request, task.request)
        return Solved(output=self.compute(request, task, report).model_dump_json())


def _plan_paths(request: PathsRequest, task: Task, report: Report) -> PathsResponse:
    report("assigning connections", None)
    return paths_of(request, request.topology if request.topology is not None else topology_of(task.inputs))


def _assess_drift(request: DriftRequest, task: Task, report: Report) -> Assessment:
    from placement.drift.from_request import assess_request  # noqa: PLC0415 - loads compiled code

    report("assessing the placement", None)
    known = {model.name: model for model in models_of(task.inputs).models}
    return assess_request(request, known.get(request.placement.model or ""))


def _forecast(request: ForecastRequest, _task: Task, report: Report) -> ReadingsForecast | DayAhead:
    report("forecasting", None)
    return forecast_power(request)


def _import(request: ImportRequest, task: Task, report: Report) -> ImportedProfiles:
    report("reading the results", None)
    return request.imported(gpus=gpus_of(task.inputs), models=models_of(task.inputs))


def _fit(request: FitRequest, task: Task, report: Report) -> Coefficients:
    if find_spec("scipy") is None:
        raise refuse("rows", "cannot be fitted: the worker needs scipy (fleetwright[fit])")
    report("fitting", None)
    return request.fitted(
        gpus=gpus_of(task.inputs),
        models=models_of(task.inputs),
        today=task.now.date(),
        report=lambda error: report(f"validated {error.split}", None),
    )


COMPUTATIONS: Final[tuple[Computation[Any], ...]] = (
    Computation(
        name="fault paths",
        path="faults/paths",
        tag="faults",
        operation="plan_fault_paths",
        title="Plan a job's paths",
        text="The least loaded assignment, compared with hashing.",
        request=PathsRequest,
        response=PathsResponse,
        compute=_plan_paths,
        gather=_documents(DocumentKind.TOPOLOGY),
    ),
    Computation(
        name="placement drift",
        path="placements/drift",
        tag="placements",
        operation="assess_placement",
        title="Assess a placement on new loads",
        text="Whether to move copies now: the imbalance, and the cost and benefit of few moves.",
        request=DriftRequest,
        response=Assessment,
        compute=_assess_drift,
        gather=_documents(DocumentKind.MODELS),
    ),
    Computation(
        name="power forecast",
        path="power/forecasts",
        tag="power",
        operation="forecast_power",
        title="Forecast the power of a row",
        text="The next readings or the next day, with quantiles.",
        request=ForecastRequest,
        response=ReadingsForecast | DayAhead,
        compute=_forecast,
    ),
    Computation(
        name="profile import",
        path="profiles/imports",
        tag="profiles",
        operation="import_profiles",
        title="Merge benchmark results",
        text="One document of measurements, which a plan request takes as `profiles`.",
        request=ImportRequest,
        response=ImportedProfiles,
        compute=_import,
        gather=_documents(DocumentKind.GPUS, DocumentKind.MODELS),
    ),
    Computation(
        name="profile fit",
        path="profiles/fits",
        tag="profiles",
        operation="fit_profiles",
        title="Fit the performance model to measurements",
        text="The coefficients of the performance model, with their errors on held-out points.",
        request=FitRequest,
        response=Coefficients,
        compute=_fit,
        gather=_documents(DocumentKind.GPUS, DocumentKind.MODELS),
    ),
)
