"""Lists stay in the order of creation when the clock steps back."""

from datetime import timedelta

import pytest

from tests.api.server.test_plans import plan_request
from tests.testbed.fault_bundles import node_diagnosis
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
TWO_DAYS = timedelta(days=2)


async def test_plans_jobs_and_diagnoses_stay_in_order(service: RunningService) -> None:
    plans, diagnoses = [], []
    async with service.client() as client:
        for _step in range(3):
            plans.append((await client.post("/v1/plans", json=plan_request())).json()["id"])
            made = await client.post("/v1/faults/diagnoses", json=node_diagnosis("gpu-1"))
            diagnoses.append(made.json()["id"])
            service.clock.at -= TWO_DAYS
        listed = {
            path: [item["id"] for item in (await client.get(path)).json()["items"]]
            for path in ("/v1/plans", "/v1/faults/diagnoses", "/v1/jobs")
        }
    assert listed["/v1/plans"] == plans[::-1]
    assert listed["/v1/faults/diagnoses"] == diagnoses[::-1]
    assert listed["/v1/jobs"] == plans[::-1]
