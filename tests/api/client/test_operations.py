"""The request of each operation, and the result of its response."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from api.client import GPUS, OFFERS, TOPOLOGY, AsyncClient, Client, Timeouts, Versioned
from api.client import access_operations as access
from api.client import operations as op
from api.client.calls import Call, path_of
from api.schemas.power import CapPlanRequest, PowerBudget, SimulationRequest
from api.schemas.sweeps import SweepRequest
from api.schemas.targets import Freeze, TargetSpec, TargetStatus
from api.schemas.tokens import TokenRequest, TokenScope
from api.server.examples import bodies
from fleet.errors import DocumentError
from fleet.offers import builtin_prices
from fleet.solvers import SolveStatus
from placement.formats.engine_writers import Engine
from placement.request import PlacementRequest
from planner.request import PlanRequest
from power.tree import PowerTree
from tests.api.client.conftest import URL, Send
from tests.api.client.wire import Wire

NOW = "2026-11-20T12:00:00Z"
DAY = datetime(2026, 11, 21, tzinfo=UTC)
SPEC = TargetSpec.model_validate(bodies()["put_target"])
STATUS = TargetStatus.model_validate(bodies()["put_target_status"])
PLAN_REQUEST = PlanRequest.model_validate(bodies()["create_plan"])
SWEEP_REQUEST = SweepRequest.model_validate(bodies()["create_sweep"])
TREE = PowerTree.model_validate(bodies()["put_power_tree"])
BUDGET = PowerBudget.model_validate(bodies()["put_power_budget"])
SIMULATION_REQUEST = SimulationRequest.model_validate(bodies()["create_power_simulation"])
PLACEMENT_REQUEST = PlacementRequest.model_validate(bodies()["create_placement"])


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        (op.check_live(), "GET", "/livez"),
        (op.check_ready(), "GET", "/readyz"),
        (op.get_metrics(), "GET", "/metrics"),
        (op.get_document(GPUS), "GET", "/v1/gpus"),
        (op.get_document_version(OFFERS, 3), "GET", "/v1/offers/versions/3"),
        (op.list_document_versions(TOPOLOGY), "GET", "/v1/topology/versions"),
        (op.list_document_versions(TOPOLOGY, limit=5, cursor="c="), "GET", "/v1/topology/versions?limit=5&cursor=c%3D"),
        (op.list_plans(limit=200), "GET", "/v1/plans?limit=200"),
        (op.get_plan("0197-a"), "GET", "/v1/plans/0197-a"),
        (op.list_sweeps(), "GET", "/v1/sweeps"),
        (op.get_sweep("0197-a"), "GET", "/v1/sweeps/0197-a"),
        (op.list_placements(), "GET", "/v1/placements"),
        (
            op.list_plans(
                name="a", labels="k=v", status=SolveStatus.OPTIMAL, created_after=datetime(2026, 1, 2, tzinfo=UTC)
            ),
            "GET",
            "/v1/plans?name=a&labels=k%3Dv&created_after=2026-01-02T00%3A00%3A00%2B00%3A00&status=optimal",
        ),
        (op.list_placements(created_by="token:a"), "GET", "/v1/placements?created_by=token%3Aa"),
        (op.get_placement("0197-a"), "GET", "/v1/placements/0197-a"),
        (op.export_placement("p", engine=Engine.SGLANG), "GET", "/v1/placements/p/export?engine=sglang"),
        (op.list_power_simulations(limit=3), "GET", "/v1/power/simulations?limit=3"),
        (op.get_power_simulation("0197-a"), "GET", "/v1/power/simulations/0197-a"),
        (op.list_power_plans(), "GET", "/v1/power/plans"),
        (op.get_power_plan("0197-a"), "GET", "/v1/power/plans/0197-a"),
        (op.list_power_trees(), "GET", "/v1/power/trees"),
        (op.get_power_tree("north"), "GET", "/v1/power/trees/north"),
        (op.list_power_budgets(), "GET", "/v1/power/budgets"),
        (op.get_power_budget("row-1"), "GET", "/v1/power/budgets/row-1"),
        (op.list_targets(), "GET", "/v1/targets"),
        (op.get_target("chat"), "GET", "/v1/targets/chat"),
        (op.get_target_status("chat"), "GET", "/v1/targets/chat/status"),
        (op.get_wanted_replicas("chat"), "GET", "/v1/targets/chat/wanted"),
        (op.get_freeze(), "GET", "/v1/freeze"),
        (access.list_tokens(), "GET", "/v1/tokens"),
        (access.revoke_token("0197aaaabbbb"), "DELETE", "/v1/tokens/0197aaaabbbb"),
        (op.list_audit(cursor="x"), "GET", "/v1/audit?cursor=x"),
        (
            op.list_audit(since=DAY, actor="token:a", subject="plans/"),
            "GET",
            "/v1/audit?from=2026-11-21T00%3A00%3A00%2B00%3A00&actor=token%3Aa&subject=plans%2F",
        ),
        (op.export_audit(from_seq=1, to_seq=9), "GET", "/v1/audit?from_seq=1&to_seq=9"),
        (op.check_audit(), "GET", "/v1/audit/check"),
        (op.check_audit(full=True, anchor="3:ab"), "GET", "/v1/audit/check?full=true&anchor=3%3Aab"),
        (op.create_audit_checkpoint(), "POST", "/v1/audit/checkpoints"),
    ],
)
def test_reads_and_revocations_have_neither_body_nor_condition(call: Call[Any], method: str, path: str) -> None:
    request = sent(call)
    assert (request.method, request.url.raw_path.decode()) == (method, path)
    assert request.content == b""
    assert not {"If-Match", "If-None-Match", "Idempotency-Key", "Content-Type"} & set(request.headers)


@pytest.mark.parametrize(
    ("call", "path", "headers"),
    [
        (op.replace_document(OFFERS, builtin_prices(), if_match='"1-a"'), "/v1/offers", {"If-Match": '"1-a"'}),
        (op.create_power_tree(TREE), "/v1/power/trees/north", {"If-None-Match": "*"}),
        (op.replace_power_tree(TREE, if_match='"1-a"'), "/v1/power/trees/north", {"If-Match": '"1-a"'}),
        (op.create_power_budget("row-1", BUDGET), "/v1/power/budgets/row-1", {"If-None-Match": "*"}),
        (op.replace_power_budget("row-1", BUDGET, if_match="*"), "/v1/power/budgets/row-1", {"If-Match": "*"}),
        (op.create_target("chat", SPEC), "/v1/targets/chat", {"If-None-Match": "*"}),
        (op.replace_target("chat", SPEC, if_match='"1-a"'), "/v1/targets/chat", {"If-Match": '"1-a"'}),
        (op.report_target_status("chat", STATUS), "/v1/targets/chat/status", {}),
        (op.replace_freeze(Freeze(frozen=True), if_match="*"), "/v1/freeze", {"If-Match": "*"}),
    ],
)
def test_writes_carry_their_precondition(call: Call[Any], path: str, headers: Mapping[str, str]) -> None:
    request = sent(call)
    assert (request.method, request.url.path) == ("PUT", path)
    assert request.headers["Content-Type"] == "application/json"
    conditions = {name: request.headers[name] for name in ("If-Match", "If-None-Match") if name in request.headers}
    assert conditions == headers
    assert isinstance(json.loads(request.content), dict)


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (op.delete_target("chat", if_match='"2-b"'), "/v1/targets/chat"),
        (op.delete_power_tree("north", if_match='"2-b"'), "/v1/power/trees/north"),
        (op.delete_power_budget("row-1", if_match='"2-b"'), "/v1/power/budgets/row-1"),
    ],
)
def test_deletions_carry_the_etag(call: Call[None], path: str) -> None:
    request = sent(call)
    assert (request.method, request.url.path, request.headers["If-Match"]) == ("DELETE", path, '"2-b"')


@pytest.mark.parametrize("key", [None, "order-7"])
@pytest.mark.parametrize("kind", ["plan", "sweep", "placement", "power/simulation", "power/plan", "token"])
def test_creations_carry_an_idempotency_key(kind: str, key: str | None) -> None:
    token_request = TokenRequest(name="ci", scopes=frozenset({TokenScope.READ}))
    calls: dict[str, Call[Any]] = {
        "plan": op.create_plan(PLAN_REQUEST, idempotency_key=key),
        "sweep": op.create_sweep(SWEEP_REQUEST, idempotency_key=key),
        "placement": op.create_placement(PLACEMENT_REQUEST, idempotency_key=key),
        "power/simulation": op.create_power_simulation(SIMULATION_REQUEST, idempotency_key=key),
        "power/plan": op.create_power_plan(CapPlanRequest(tree=TREE), idempotency_key=key),
        "token": access.create_token(token_request, idempotency_key=key),
    }
    request = sent(calls[kind])
    assert (request.method, request.url.path) == ("POST", f"/v1/{kind}s")
    assert request.headers["Idempotency-Key"] == (key or request.headers["Idempotency-Key"])
    assert len(request.headers["Idempotency-Key"]) == (len(key) if key else 32)


def test_request_bodies_read_back_equal() -> None:
    assert TargetSpec.model_validate_json(sent(op.create_target("chat", SPEC)).content) == SPEC
    assert PlanRequest.model_validate_json(sent(op.create_plan(PLAN_REQUEST)).content) == PLAN_REQUEST
    assert (
        PlacementRequest.model_validate_json(sent(op.create_placement(PLACEMENT_REQUEST)).content) == PLACEMENT_REQUEST
    )
    assert PowerTree.model_validate_json(sent(op.create_power_tree(TREE)).content) == TREE
    assert PowerBudget.model_validate_json(sent(op.create_power_budget("r", BUDGET)).content) == BUDGET
    simulation = sent(op.create_power_simulation(SIMULATION_REQUEST)).content
    assert SimulationRequest.model_validate_json(simulation) == SIMULATION_REQUEST
    assert TargetStatus.model_validate_json(sent(op.report_target_status("chat", STATUS)).content) == STATUS


def test_the_read_timeout_of_a_plan_includes_its_time_limit() -> None:
    timeouts = Timeouts(connect_s=1, read_s=20, write_s=3, pool_s=4)
    assert sent(op.create_plan(PLAN_REQUEST), timeouts=timeouts).extensions["timeout"] == {
        "connect": 1,
        "read": 110,
        "write": 3,
        "pool": 4,
    }
    assert sent(op.get_freeze(), timeouts=timeouts).extensions["timeout"]["read"] == 20


def test_the_base_path_of_the_url_is_kept() -> None:
    wire = Wire([httpx.Response(204)])
    with Client("https://host.test/fleet/", transport=wire.transport) as client:
        client.report_target_status("chat", STATUS)
    assert str(wire.requests[0].url) == "https://host.test/fleet/v1/targets/chat/status"


@pytest.mark.parametrize("name", ["../tokens", "a/b", "a?b=c", "a#b", "100%", "ä"])
def test_a_name_stays_one_segment_of_the_path(name: str) -> None:
    request = sent(op.get_plan(name))
    assert request.url.raw_path.count(b"/") == 3
    assert b"?" not in request.url.raw_path
    assert httpx.URL(path_of("http://x/{name}", name=name)).path == f"/{name}"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_an_invalid_path_segment_is_refused(name: str) -> None:
    with pytest.raises(DocumentError, match=r"^node: cannot stand in a path, expected a name other than "):
        path_of("/v1/faults/quarantine/nodes/{node}/actions", node=name)


def test_a_document_has_its_etag(send: Send) -> None:
    wire = Wire([httpx.Response(200, headers={"ETag": '"4-d"'}, json={"frozen": True, "reason": "audit"})])
    answer = send(op.get_freeze(), wire.transport)
    assert answer == Versioned(etag='"4-d"', document=Freeze(frozen=True, reason="audit"))


def test_an_unchanged_document_gives_none(send: Send) -> None:
    wire = Wire([httpx.Response(304, headers={"ETag": '"4-d"'})])
    assert send(op.get_document_if_changed(OFFERS, etag='"4-d"'), wire.transport) is None
    assert wire.requests[0].headers["If-None-Match"] == '"4-d"'


def test_a_changed_document_is_returned(send: Send) -> None:
    body = builtin_prices().model_dump_json()
    wire = Wire([httpx.Response(200, headers={"ETag": '"5-e"'}, content=body)])
    answer = send(op.get_document_if_changed(OFFERS, etag='"4-d"'), wire.transport)
    assert answer == Versioned(etag='"5-e"', document=builtin_prices())


def test_lists_are_read_page_by_page() -> None:
    wire = Wire(PAGES)
    with Client(URL, transport=wire.transport) as client:
        assert [target.name for target in client.iter_targets(limit=2)] == ["a", "b", "c"]
    assert queries(wire) == [{"limit": "2"}, {"limit": "2", "cursor": "after-b"}]


@pytest.mark.anyio
async def test_lists_are_read_page_by_page_asynchronously() -> None:
    wire = Wire(PAGES)
    async with AsyncClient(URL, transport=wire.transport) as client:
        assert [target.name async for target in client.iter_targets(limit=2)] == ["a", "b", "c"]
    assert queries(wire) == [{"limit": "2"}, {"limit": "2", "cursor": "after-b"}]


def test_a_page_is_requested_only_when_it_is_needed() -> None:
    wire = Wire(PAGES)
    with Client(URL, transport=wire.transport) as client:
        items = client.iter_targets()
        assert not wire.requests
        next(items)
        assert len(wire.requests) == 1


def sent(call: Call[Any], **options: Any) -> httpx.Request:
    """The request that a client sends for a call."""
    wire = Wire([httpx.Response(418)])
    with Client(URL, transport=wire.transport, **options) as client, pytest.raises(Exception, match="418"):
        client.send(call)
    return wire.requests[0]


def queries(wire: Wire) -> list[dict[str, str]]:
    return [dict(request.url.params) for request in wire.requests]


def page(*names: str, next_cursor: str | None = None) -> httpx.Response:
    items = [{"name": name, "version": 1, "spec": SPEC.model_dump(mode="json")} for name in names]
    return httpx.Response(200, json={"items": items, "next_cursor": next_cursor})


PAGES = [page("a", "b", next_cursor="after-b"), page("c")]


@pytest.mark.parametrize("describe", [op.create_plan, op.submit_plan])
def test_a_creation_names_and_labels_its_result(describe: Any) -> None:
    named = describe(PLAN_REQUEST, name="a b", labels={"k": "v", "l": ""})
    assert (named.query, describe(PLAN_REQUEST).query) == ({"name": "a b", "labels": "k=v,l="}, {})
