"""One call of each computation."""

from typing import Any

from api.client import computation_operations as computations
from api.client.calls import Call
from api.schemas.fault_paths import PathsRequest
from api.server.examples import bodies
from placement.drift_request import DriftRequest
from planner.performance.fit_request import FitRequest
from planner.profiles.import_request import ImportRequest
from power.forecast.report import ForecastRequest

PATHS = PathsRequest.model_validate(bodies()["plan_fault_paths"])
DRIFT = DriftRequest.model_validate(bodies()["assess_placement"])
FORECAST = ForecastRequest.model_validate(bodies()["forecast_power"])
IMPORT = ImportRequest.model_validate(bodies()["import_profiles"])
FIT = FitRequest.model_validate(bodies()["fit_profiles"])

COMPUTATION_EXAMPLES: dict[str, list[Call[Any]]] = {
    "plan_fault_paths": [computations.plan_fault_paths(PATHS)],
    "assess_placement": [computations.assess_placement(DRIFT)],
    "forecast_power": [computations.forecast_power(FORECAST)],
    "import_profiles": [computations.import_profiles(IMPORT)],
    "fit_profiles": [computations.fit_profiles(FIT)],
}
