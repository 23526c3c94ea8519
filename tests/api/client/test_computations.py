"""The client's computations against the service itself."""

import pytest

from api.schemas.tokens import TokenScope
from power.forecast.report import Ahead, ReadingsForecast
from tests.api.client.computation_examples import DRIFT, FORECAST, IMPORT, PATHS
from tests.api.client.test_service import asynchronous
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


async def test_computations_give_typed_results(sqlite_service: RunningService) -> None:
    async with asynchronous(sqlite_service, TokenScope.PLAN) as client:
        paths = await client.plan_fault_paths(PATHS)
        assessment = await client.assess_placement(DRIFT)
        forecast = await client.forecast_power(FORECAST)
        imported = await client.import_profiles(IMPORT)
        assert await client.plan_fault_paths(PATHS) == paths
    assert (paths.planned.greatest, paths.choices) == (1.0, None)
    assert assessment.imbalance.mean > assessment.after_moves >= assessment.bound.mean
    assert FORECAST.ahead is Ahead.READINGS
    assert isinstance(forecast, ReadingsForecast)
    assert [result.runs for result in imported.results] == [len(imported.profiles.points)] == [2]
