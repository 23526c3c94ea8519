"""Sweeps through the client."""

import pytest

from api.schemas.tokens import TokenScope
from tests.api.client.test_operations import SWEEP_REQUEST
from tests.api.client.test_service import asynchronous
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


async def test_sweeps_are_created_once_per_key_and_read_back(sqlite_service: RunningService) -> None:
    async with asynchronous(sqlite_service, TokenScope.ADMIN) as client:
        made = await client.create_sweep(SWEEP_REQUEST, idempotency_key="k")
        assert await client.create_sweep(SWEEP_REQUEST, idempotency_key="k") == made
        assert await client.get_sweep(made.id) == made
        assert [summary.id async for summary in client.iter_sweeps()] == [made.id]
        points = (await client.list_jobs(parent=made.id)).items
        assert [point.kind for point in points] == ["sweep point"] * len(made.sweep.points)
