"""Computations over HTTP: the results of the packages, limits, and problems with the field of the request."""

import json
from typing import Any

import numpy as np
import pytest

from api.schemas.tokens import TokenScope
from api.server.examples import bodies
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from placement.drift.from_request import assess_request
from placement.drift_request import DriftRequest
from planner.profiles.import_request import ImportRequest
from power.forecast.report import MAX_GIVEN, ForecastRequest, forecast_power
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
PATHS = {
    "assess_placement": "/v1/placements/drift",
    "forecast_power": "/v1/power/forecasts",
    "import_profiles": "/v1/profiles/imports",
    "fit_profiles": "/v1/profiles/fits",
}


def computed(operation: str) -> Any:
    body = bodies()[operation]
    match operation:
        case "assess_placement":
            return assess_request(DriftRequest.model_validate(body), None)
        case "forecast_power":
            return forecast_power(ForecastRequest.model_validate(body))
        case _:
            return ImportRequest.model_validate(body).imported(gpus=builtin_gpus(), models=builtin_models())


@pytest.mark.parametrize("operation", ["assess_placement", "forecast_power", "import_profiles"])
async def test_a_computation_gives_the_result_of_its_package(service: RunningService, operation: str) -> None:
    async with service.client(TokenScope.PLAN) as planner, service.client(TokenScope.READ) as reader:
        answer = await planner.post(PATHS[operation], json=bodies()[operation])
        refused = await reader.post(PATHS[operation], json=bodies()[operation])
    assert answer.status_code == 200, answer.text
    assert answer.json() == json.loads(computed(operation).model_dump_json())
    assert refused.status_code == 403


async def test_a_computation_is_a_job_that_keeps_its_result(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as planner:
        accepted = await planner.post(
            PATHS["import_profiles"], json=bodies()["import_profiles"], headers={"Prefer": "respond-async"}
        )
        job = accepted.json()
        events = await planner.get(f"/v1/jobs/{job['id']}/events")
        output = await planner.get(f"/v1/jobs/{job['id']}/output")
    assert (accepted.status_code, job["kind"], job["lane"]) == (202, "profile import", "work")
    assert '"state":"succeeded"' in events.text
    assert output.json() == json.loads(computed("import_profiles").model_dump_json())


async def test_a_day_is_forecast_from_past_days(sqlite_service: RunningService) -> None:
    at_s = np.arange(0.0, 6 * 86_400.0, 600.0)
    watts = 150_000.0 + 40_000.0 * np.sin(at_s / 86_400.0 * 2 * np.pi)
    body = {"at_s": at_s.tolist(), "watts": watts.tolist(), "ahead": "day", "step_min": 60}
    async with sqlite_service.client(TokenScope.PLAN) as planner:
        found = (await planner.post(PATHS["forecast_power"], json=body)).json()
        short = await planner.post(PATHS["forecast_power"], json=body | {"at_s": [0, 1], "watts": [1, 2]})
    assert (found["step_s"], len(found["steps"]), found["past_days"]) == (3_600.0, 24, 6)
    assert list(found["steps"][0]["watts"]) == ["0.5", "0.9", "0.99"]
    assert (short.status_code, short.json()["errors"][0]["path"]) == (422, "watts")


ROW = bodies()["fit_profiles"]["rows"][0]
WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("assess_placement", {"loads": [[1, 1, 1]] * 2}, "loads", "must have 4 experts per layer"),
    ("assess_placement", {"loads": [[1, 1, 1, 1], [1]]}, "loads[1]", "as many experts as the first layer"),
    ("assess_placement", {"loads": None}, "loads", "give either loads or windows"),
    ("assess_placement", {"act_above": 1.01, "settle_at": 1.05}, "settle_at", "must be from 1 to `act_above`"),
    ("assess_placement", {"window_s": 0}, "window_s", "must be above 0"),
    ("assess_placement", {"node_gb_per_s": 5}, "node_gb_per_s", "needs `move_gb_per_s`"),
    ("assess_placement", {"move_gb_per_s": 5}, "move_gb_per_s", "needs `expert_bytes`"),
    ("forecast_power", {"watts": [1.0] * 59}, "watts", "each with its time"),
    ("forecast_power", {"at_s": [0.0] * 60}, "at_s", "must rise"),
    ("forecast_power", {"watts": [-1.0] * 60}, "watts[0]", "greater than or equal to 0"),
    ("forecast_power", {"ahead": "day"}, "watts", "at least 4 whole days"),
    ("import_profiles", {"results": []}, "results", "at least one"),
    ("import_profiles", {"results": [{"name": "a.json", "text": "{}"}]}, "results[0]", "a.json: is in no known format"),
    ("fit_profiles", {"rows": []}, "rows", "at least one"),
    ("fit_profiles", {"rows": [ROW] * 100}, "rows", "1 points can be used, expected at least 100"),
    (
        "fit_profiles",
        {"rows": [ROW | {"isl": str(512 + number)} for number in range(100)]},
        "rows",
        "the points are of H100-SXM alone, expected at least 2 GPU types",
    ),
]


@pytest.mark.parametrize(("operation", "change", "path", "message"), WRONG)
async def test_a_wrong_request_is_refused_by_field(
    sqlite_service: RunningService, operation: str, change: dict[str, Any], path: str, message: str
) -> None:
    async with sqlite_service.client(TokenScope.PLAN) as planner:
        answer = await planner.post(PATHS[operation], json=bodies()[operation] | change)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["path"] == path
    assert message in answer.json()["errors"][0]["message"]


async def test_more_readings_than_allowed_are_refused(sqlite_service: RunningService) -> None:
    count = MAX_GIVEN + 1
    body = {"at_s": list(range(count)), "watts": [1] * count}
    async with sqlite_service.client(TokenScope.PLAN) as planner:
        answer = await planner.post(PATHS["forecast_power"], json=body)
    assert answer.status_code == 422
    assert f"at most {MAX_GIVEN}" in answer.json()["errors"][0]["message"]
