"""Leases fence reports: a controller that lost its lease changes nothing, and one of release 0.2.0 keeps working."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from api.schemas.tokens import TokenScope
from tests.api.server.test_separation import token
from tests.api.server.test_targets import CREATE, SPEC, STATUS
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
EVALUATION: dict[str, Any] = {"members": {"gpu-1": {}}}


async def claim(client: httpx.AsyncClient, lease: str, holder: str | None, headers: dict[str, str]) -> int:
    answer = await client.put(f"/v1/leases/{lease}", json={"holder": holder, "lease_s": 10}, headers=headers)
    assert answer.status_code in {200, 201}, answer.text
    term: int = answer.json()["term"]
    return term


async def report(client: httpx.AsyncClient, term: int | None, headers: dict[str, str]) -> httpx.Response:
    under = {} if term is None else {"Fleetwright-Lease": f"controller/{term}"}
    return await client.put("/v1/targets/chat/status", json=STATUS, headers=headers | under)


async def with_target(running: RunningService) -> None:
    async with running.client() as admin:
        assert (await admin.put("/v1/targets/chat", json=SPEC, headers=CREATE)).status_code == 201


async def test_a_report_of_an_older_term_is_refused(service: RunningService) -> None:
    await with_target(service)
    async with service.client(TokenScope.REPORT) as controller:
        first = await claim(controller, "controller", "a", CREATE)
        assert (await report(controller, first, {})).status_code == 204
        second = await claim(controller, "controller", "b", {"If-Match": "*"})
        stale = await report(controller, first, {})
        future = await report(controller, second + 1, {})
        current = await report(controller, second, {})
    assert (stale.status_code, stale.json()["type"]) == (409, "urn:fleetwright:problem:stale-lease")
    assert stale.json()["detail"].startswith(f"term {first} of lease 'controller' is over")
    assert (future.status_code, current.status_code) == (409, 204)


async def test_a_report_without_a_term_is_for_the_token_of_the_holder(service: RunningService) -> None:
    """As controllers of release 0.2.0 report."""
    await with_target(service)
    holder, other = [await token(service, TokenScope.OPERATE) for _ in range(2)]
    async with service.client(None) as client:
        assert (await report(client, None, other)).status_code == 204, "nobody holds the lease"
        term = await claim(client, "controller", "a", holder | CREATE)
        assert (await report(client, None, holder)).status_code == 204
        assert (await report(client, None, other)).status_code == 409
        assert (await report(client, term, other)).status_code == 409, "everybody can read the term"
        await claim(client, "controller", None, holder | {"If-Match": "*"})
        assert (await report(client, None, other)).status_code == 204, "it was given back"
        assert (await report(client, term, holder)).status_code == 409


async def test_a_lease_that_an_older_replica_granted_has_no_known_token(
    service: RunningService, database_url: str
) -> None:
    await with_target(service)
    holder, other = [await token(service, TokenScope.OPERATE) for _ in range(2)]
    async with service.client(None) as client:
        await claim(client, "controller", "a", holder | CREATE)
        engine = create_async_engine(database_url)
        async with engine.begin() as connection:  # as release 0.2.0 writes: without the new columns
            await connection.execute(text("UPDATE leases SET holder = 'b', term = 2, beats = 0"))
        await engine.dispose()
        assert (await report(client, None, other)).status_code == 204
        assert (await report(client, 1, holder)).status_code == 409


@pytest.mark.parametrize("header", ["controller", "controller/0", "/3", "controller/x", "remediation/1"])
async def test_a_term_has_the_form_of_one_of_this_lease(service: RunningService, header: str) -> None:
    await with_target(service)
    async with service.client(TokenScope.REPORT) as client:
        answer = await client.put("/v1/targets/chat/status", json=STATUS, headers={"Fleetwright-Lease": header})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "header.Fleetwright-Lease"


async def test_evaluations_and_cases_are_fenced_by_the_lease_of_remediation(service: RunningService) -> None:
    path = "/v1/faults/quarantine/evaluations"
    async with service.client(TokenScope.REPORT) as client:
        await claim(client, "remediation", "a", CREATE)
        term = await claim(client, "remediation", "b", {"If-Match": "*"})
        old, new = ({"Fleetwright-Lease": f"remediation/{number}"} for number in (term - 1, term))
        statuses = [(await client.post(path, json=EVALUATION, headers=held)).status_code for held in (old, new)]
        case = {
            "node": "gpu-1",
            "state": "quarantined",
            "stage": "requested",
            "since": "2026-11-21T12:00:00Z",
            "opened_at": "2026-11-21T12:00:00Z",
        }
        statuses += [
            (await client.put("/v1/faults/cases/c", json=case, headers=held | CREATE)).status_code
            for held in (old, new)
        ]
    assert statuses == [409, 200, 409, 201]


@pytest.mark.parametrize("error", [timedelta(days=-8), timedelta(days=8)])
async def test_an_absurd_time_of_a_report_is_refused_with_the_allowed_range(
    service: RunningService, error: timedelta
) -> None:
    await with_target(service)
    async with service.client(TokenScope.REPORT) as client:
        for zone in ("Z", ""):
            at = f"{service.clock.now() + error:%Y-%m-%dT%H:%M:%S}{zone}"
            refused = await client.put("/v1/targets/chat/status", json=STATUS | {"observed_at": at})
            assert refused.status_code == 422
            message = refused.json()["errors"][0]["message"]
            assert message.startswith("allowed: 2026-11-14 12:00:00Z to 2026-11-28 12:00:00Z, got ")
        at = f"{service.clock.now() + error / 2:%Y-%m-%dT%H:%M:%S}"
        assert (await client.put("/v1/targets/chat/status", json=STATUS | {"observed_at": at})).status_code == 204
