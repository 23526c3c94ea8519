"""Every operation x every caller: nobody does more than the scope of the token allows.

The operations come from the application.  An operation without a scope fails here, and so does one that neither has the
project of the request nor is declared as shared or of the whole fleet.
"""

from collections.abc import Mapping

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from api.schemas.tokens import TokenScope
from tests.api.server.operations import Operation, operations
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

PUBLIC = {
    *("livez", "readyz", "metrics", "llm_d_metrics", "aibrix_metrics", "/openapi.json"),
    *("/", "/docs", "/docs/start.js", "/docs/{name}", "/console/{path:path}"),
}
# The fleet owns these, and every project needs them.
SHARED_READS = {
    *(f"{verb}_{kind}{part}" for kind in ("gpus", "models", "offers", "topology") for verb, part in (("get", ""),)),
    *(f"list_{kind}_versions" for kind in ("gpus", "models", "offers", "topology")),
    *(f"get_{kind}_version" for kind in ("gpus", "models", "offers", "topology")),
    *("list_power_trees", "get_power_tree", "list_power_budgets", "get_power_budget"),
    *("list_stocks", "get_stock"),
    *("get_freeze", "list_leases", "get_lease"),
    *("get_quarantine", "get_quarantine_rules", "list_remediation_cases", "get_remediation_case"),
    *("list_health_events", "get_health_event"),
}
# Compute something and store nothing.
WITHOUT_TRACE = {
    *("plan_fault_paths", "validate_plan"),
    *("assess_placement", "forecast_power", "import_profiles", "fit_profiles"),
}
# About the caller and its own session: every token may.
OF_CALLER = {"open_session", "get_session", "end_session"}
INCLUDED = {TokenScope.OPERATE: {TokenScope.REPORT}}


def guarded(running: RunningService) -> list[Operation]:
    return [each for each in operations(running.app) if each.id not in PUBLIC]


def allowed(held: TokenScope, operation: Operation) -> bool:
    assert operation.scope is not None
    needed = operation.scope.scope
    if needed is None:
        return operation.id in OF_CALLER
    return held in {needed, TokenScope.ADMIN} or needed in INCLUDED.get(held, ())


async def test_every_operation_declares_its_scope(sqlite_service: RunningService) -> None:
    found = list(operations(sqlite_service.app))
    assert len(found) > 80
    assert {each.id for each in found if each.scope is None} == PUBLIC
    other = {
        route.path
        for route in iter_route_contexts(sqlite_service.app.routes)
        if not isinstance(route.original_route, APIRoute)
    }
    assert other == set()


async def test_every_operation_has_a_project_or_declares_why_not(sqlite_service: RunningService) -> None:
    without = {each.id for each in guarded(sqlite_service) if not each.has_project and not of_fleet(each)}
    assert without == SHARED_READS | WITHOUT_TRACE | OF_CALLER
    both = [each.id for each in guarded(sqlite_service) if each.has_project and of_fleet(each)]
    assert both == ["put_project", "delete_project"], "a project is its own"


def of_fleet(operation: Operation) -> bool:
    return operation.scope is not None and operation.scope.fleet


async def call(client: httpx.AsyncClient, operation: Operation, headers: Mapping[str, str] | None = None) -> int:
    body: dict[str, str] | None = None if operation.method in {"GET", "DELETE"} else {}
    return (await client.request(operation.method, operation.url(), json=body, headers=headers)).status_code


@pytest.mark.parametrize("authorization", [None, "Bearer nonsense", f"Bearer fw_{'a' * 12}_{'b' * 43}"])
async def test_without_a_known_token_every_operation_is_refused(
    sqlite_service: RunningService, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with sqlite_service.client(None) as stranger:
        statuses = {each.id: await call(stranger, each, headers) for each in guarded(sqlite_service)}
    assert {name: status for name, status in statuses.items() if status != 401} == {}


@pytest.mark.parametrize("scope", list(TokenScope))
async def test_a_token_is_refused_exactly_what_its_scope_does_not_allow(
    sqlite_service: RunningService, scope: TokenScope
) -> None:
    async with sqlite_service.client(scope) as client:
        for each in guarded(sqlite_service):
            status = await call(client, each)
            assert status not in {401, 405, 429, 500}, each.id
            assert (status != 403) is allowed(scope, each), f"{each.id}: {status}"


@pytest.mark.parametrize("scope", list(TokenScope))
async def test_a_token_of_a_project_is_also_refused_what_belongs_to_the_fleet(
    sqlite_service: RunningService, scope: TokenScope
) -> None:
    async with sqlite_service.client() as admin:
        await admin.put("/v1/projects/team-a", json={}, headers={"If-None-Match": "*"})
        request = {"name": "a", "scopes": [scope.value], "project": "team-a"}
        secret = (await admin.post("/v1/tokens", json=request)).json()["secret"]
    headers = {"Authorization": f"Bearer {secret}"}
    async with sqlite_service.client(None) as client:
        for each in guarded(sqlite_service):
            status = await call(client, each, headers)
            assert (status != 403) is (allowed(scope, each) and not of_fleet(each)), f"{each.id}: {status}"
