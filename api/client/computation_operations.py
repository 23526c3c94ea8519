"""Describes the computations whose result only their job keeps."""

from typing import Any

from pydantic import BaseModel

from api.client.calls import Call, posting
from api.schemas.fault_paths import PathsRequest, PathsResponse
from placement.drift_request import Assessment, DriftRequest
from planner.performance.coefficients import Coefficients
from planner.performance.fit_request import FitRequest
from planner.profiles.import_request import ImportedProfiles, ImportRequest
from power.forecast.report import DayAhead, ForecastRequest, ReadingsForecast

PLANNING_S = 120.0
FITTING_S = 900.0


def plan_fault_paths(request: PathsRequest) -> Call[PathsResponse]:
    """Assign a path to each connection of a job.  The service stores nothing."""
    return _computing("/v1/faults/paths", request, PathsResponse)


def assess_placement(request: DriftRequest) -> Call[Assessment]:
    """Assess a placement on new loads.  The service stores nothing."""
    return _computing("/v1/placements/drift", request, Assessment)


def forecast_power(request: ForecastRequest) -> Call[ReadingsForecast | DayAhead]:
    """Forecast the power of a row.  The service stores nothing."""
    return _computing("/v1/power/forecasts", request, ReadingsForecast | DayAhead)


def import_profiles(request: ImportRequest) -> Call[ImportedProfiles]:
    """Merge benchmark results into one document.  The service stores nothing."""
    return _computing("/v1/profiles/imports", request, ImportedProfiles)


def fit_profiles(request: FitRequest) -> Call[Coefficients]:
    """Fit the performance model to measurements.  The service stores nothing."""
    return _computing("/v1/profiles/fits", request, Coefficients, work_s=FITTING_S)


def _computing(path: str, request: BaseModel, result: Any, *, work_s: float = PLANNING_S) -> Call[Any]:
    return posting(path, request, result, work_s=work_s)
