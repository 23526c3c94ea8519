"""The examples of the OpenAPI document: one per request body, and the service accepts each."""

from typing import Any

import httpx
import pytest

from api.schemas.leases import LEASE_HEADER
from api.schemas.tokens import TokenScope
from api.server.examples import NAMES, bodies
from tests.api.server.operations import Operation, operations
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


def documented(service: RunningService) -> dict[str, dict[str, Any]]:
    """Every operation with a body, by id."""
    return {
        operation["operationId"]: operation
        for methods in service.app.openapi()["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    }


async def test_every_request_body_has_an_example(sqlite_service: RunningService) -> None:
    found = documented(sqlite_service)
    assert found.keys() == bodies().keys()
    for name, operation in found.items():
        assert operation["requestBody"]["content"]["application/json"]["example"] == bodies()[name]
        parameters = operation.get("parameters", ())
        names = {each["name"]: each.get("example") for each in parameters if each["in"] == "path"}
        assert names == NAMES.get(name, {})


async def test_the_service_accepts_every_example(service: RunningService) -> None:
    known = {each.id: each for each in operations(service.app)}
    documents = documented(service)
    names = {name: dict(each) for name, each in NAMES.items()}
    refused: dict[str, str] = {}
    created: dict[str, dict[str, str]] = {}  # fields of later bodies
    for name, body in bodies().items():
        headers = {each["name"].lower() for each in documents[name].get("parameters", ())}
        answer = await sent(service, known[name], body | created.get(name, {}), names.get(name, {}), headers)
        if not answer.is_success:
            refused[name] = answer.text
        elif name == "create_plan":
            names["explain_plan"]["id"] = names["replay_plan"]["id"] = answer.json()["id"]
            created["set_planning_loop_plan"] = {"plan_id": answer.json()["id"]}
        elif name == "report_diagnosis":
            names["put_diagnosis_expiry"]["diagnosis_id"] = answer.json()["id"]
    assert refused == {}


async def sent(
    service: RunningService, operation: Operation, body: Any, names: dict[str, str], headers: set[str]
) -> httpx.Response:
    """Send an example as a caller with just the scope that the operation needs."""
    assert operation.scope is not None
    condition = {"If-Match": "*"} if "if-match" in headers else {}
    if operation.id == "set_planning_loop_plan":
        condition = {LEASE_HEADER: "controller/1"}  # that of the example of `put_lease`
    async with service.client(operation.scope.scope or TokenScope.READ) as client:
        url = operation.url(**names)
        answer = await client.request(operation.method, url, json=body, headers=condition)
        if answer.status_code == 412:  # nothing is there yet
            answer = await client.request(operation.method, url, json=body, headers={"If-None-Match": "*"})
    return answer
