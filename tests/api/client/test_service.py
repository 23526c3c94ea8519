"""The client against the service itself: the same operations on both sides, and each of them works."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest

from api.client import (
    GPUS,
    MODELS,
    OFFERS,
    TOPOLOGY,
    AsyncClient,
    Client,
    DocumentType,
    ForbiddenError,
    InProcessTransport,
    InvalidRequestError,
    NotFoundError,
    PreconditionFailedError,
    UnauthorizedError,
)
from api.client import operations as op
from api.client.calls import Call
from api.client.errors import ConflictError
from api.schemas.faults import DiagnosisReport
from api.schemas.leases import LeaseClaim
from api.schemas.power import CapPlanRequest
from api.schemas.target_state import ApprovalRequest
from api.schemas.targets import Freeze
from api.schemas.tokens import TokenScope
from api.server.examples import bodies
from faults.quarantine import NodeState, OperatorAction, PolicyMode
from placement.formats.engine_writers import Engine
from tests.api.client.audit_examples import AUDIT_EXAMPLES
from tests.api.client.computation_examples import COMPUTATION_EXAMPLES
from tests.api.client.console_examples import CONSOLE_EXAMPLES, TOKEN_REQUEST
from tests.api.client.fault_examples import EVALUATION, FAULT_EXAMPLES, FAULT_SIMULATION, REPORT
from tests.api.client.job_examples import JOB_EXAMPLES
from tests.api.client.planning_loop_examples import PLANNING_LOOP_EXAMPLES
from tests.api.client.project_examples import PROJECT_EXAMPLES
from tests.api.client.stock_examples import STOCK_EXAMPLES
from tests.api.client.test_operations import (
    BUDGET,
    PLACEMENT_REQUEST,
    PLAN_REQUEST,
    SIMULATION_REQUEST,
    SPEC,
    STATUS,
    TREE,
)
from tests.api.client.test_surface import OPERATIONS
from tests.testbed.fault_bundles import bundle_text, node_diagnosis
from tests.testbed.service import TOKENS, RunningService

pytestmark = pytest.mark.anyio
BASE_URL = "http://localhost"
APPROVAL = ApprovalRequest.model_validate(bodies()["approve_target"])
CLAIM = LeaseClaim.model_validate(bodies()["put_lease"])

# One call of each operation, so that its method, path and expected statuses can be compared.
EXAMPLES: dict[str, list[Call[Any]]] = {
    "check_live": [op.check_live()],
    "check_ready": [op.check_ready()],
    "get_metrics": [op.get_metrics()],
    "get_document": [op.get_document(kind) for kind in (GPUS, MODELS, OFFERS, TOPOLOGY)],
    "get_document_if_changed": [
        op.get_document_if_changed(kind, etag='"1-a"') for kind in (GPUS, MODELS, OFFERS, TOPOLOGY)
    ],
    "replace_document": [
        op.replace_document(kind, Freeze(), if_match='"1-a"')  # only the path matters
        for kind in (DocumentType(each.kind, Freeze) for each in (GPUS, MODELS, OFFERS, TOPOLOGY))
    ],
    "list_document_versions": [op.list_document_versions(kind) for kind in (GPUS, MODELS, OFFERS, TOPOLOGY)],
    "get_document_version": [op.get_document_version(kind, 1) for kind in (GPUS, MODELS, OFFERS, TOPOLOGY)],
    "create_plan": [op.create_plan(PLAN_REQUEST)],
    "list_plans": [op.list_plans()],
    "get_plan": [op.get_plan("p")],
    "create_placement": [op.create_placement(PLACEMENT_REQUEST)],
    "list_placements": [op.list_placements()],
    "get_placement": [op.get_placement("p")],
    "export_placement": [op.export_placement("p", engine=Engine.VLLM)],
    "create_power_simulation": [op.create_power_simulation(SIMULATION_REQUEST)],
    "list_power_simulations": [op.list_power_simulations()],
    "get_power_simulation": [op.get_power_simulation("s")],
    "create_power_plan": [op.create_power_plan(CapPlanRequest(tree=TREE))],
    "list_power_plans": [op.list_power_plans()],
    "get_power_plan": [op.get_power_plan("p")],
    "list_power_trees": [op.list_power_trees()],
    "get_power_tree": [op.get_power_tree("n")],
    "create_power_tree": [op.create_power_tree(TREE)],
    "replace_power_tree": [op.replace_power_tree(TREE, if_match='"1-a"')],
    "delete_power_tree": [op.delete_power_tree("n", if_match='"1-a"')],
    "list_power_budgets": [op.list_power_budgets()],
    "get_power_budget": [op.get_power_budget("r")],
    "create_power_budget": [op.create_power_budget("r", BUDGET)],
    "replace_power_budget": [op.replace_power_budget("r", BUDGET, if_match='"1-a"')],
    "delete_power_budget": [op.delete_power_budget("r", if_match='"1-a"')],
    **FAULT_EXAMPLES,
    **COMPUTATION_EXAMPLES,
    **JOB_EXAMPLES,
    **CONSOLE_EXAMPLES,
    "list_targets": [op.list_targets()],
    "get_target": [op.get_target("t")],
    "create_target": [op.create_target("t", SPEC)],
    "replace_target": [op.replace_target("t", SPEC, if_match='"1-a"')],
    "preview_target": [op.preview_target("t", SPEC)],
    "delete_target": [op.delete_target("t", if_match='"1-a"')],
    "get_target_status": [op.get_target_status("t")],
    "get_wanted_replicas": [op.get_wanted_replicas("t")],
    "report_target_status": [op.report_target_status("t", STATUS)],
    "approve_target": [op.approve_target("t", APPROVAL)],
    "list_leases": [op.list_leases()],
    "get_lease": [op.get_lease("l")],
    "create_lease": [op.create_lease("l", CLAIM)],
    "replace_lease": [op.replace_lease("l", CLAIM, if_match='"1-a"')],
    "get_freeze": [op.get_freeze()],
    "replace_freeze": [op.replace_freeze(Freeze(), if_match="*")],
    **(PLANNING_LOOP_EXAMPLES | STOCK_EXAMPLES),
    **PROJECT_EXAMPLES,
    **AUDIT_EXAMPLES,
}


@pytest.fixture
async def client(sqlite_service: RunningService) -> AsyncIterator[AsyncClient]:
    async with asynchronous(sqlite_service, TokenScope.ADMIN) as client:
        yield client


def asynchronous(service: RunningService, scope: TokenScope | None) -> AsyncClient:
    token = TOKENS[scope] if scope is not None else None
    return AsyncClient(BASE_URL, token=token, transport=InProcessTransport(service.app))


class FromThread(httpx.BaseTransport):
    """Calls an ASGI application from a worker thread, on the event loop that the thread came from."""

    def __init__(self, service: RunningService) -> None:
        self._asgi = InProcessTransport(service.app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return anyio.from_thread.run(self._exchange, request)

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        given = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        response = await self._asgi.handle_async_request(given)
        headers = [(name, value) for name, value in response.headers.items() if name != "content-encoding"]
        return httpx.Response(response.status_code, headers=headers, content=await response.aread())


async def test_the_service_and_the_client_have_the_same_operations(sqlite_service: RunningService) -> None:
    assert EXAMPLES.keys() == OPERATIONS.keys()
    described = {
        (method.upper(), path): {int(status) for status in operation["responses"] if status.isdigit()}
        for path, operations in sqlite_service.app.openapi()["paths"].items()
        for method, operation in operations.items()
    }
    reached = set()
    for call in (call for calls in EXAMPLES.values() for call in calls):
        fitting = [key for key in described if key[0] == call.method and fits(call.path, key[1])]
        # A literal path beats a template: /v1/audit/check is not /v1/audit/{seq}.
        assert fitting, f"the service has no {call}"
        key = min(fitting, key=lambda key: key[1].count("{"))
        reached.add(key)
        assert call.expects <= described[key], f"{call} expects answers that {key[1]} does not describe"
    assert reached == described.keys(), "operations without a method of the client"


def fits(path: str, template: str) -> bool:
    return re.fullmatch(re.sub(r"\\\{[^/]*?\\\}", "[^/]+", re.escape(template)), path) is not None


async def test_health_checks_and_metrics_respond(client: AsyncClient) -> None:
    await client.check_live()
    await client.check_ready()
    assert "fleetwright_build_info" in await client.get_metrics()


@pytest.mark.parametrize("kind", [GPUS, MODELS, OFFERS, TOPOLOGY], ids=lambda kind: kind.kind.value)
async def test_documents_are_read_replaced_and_kept_in_versions(client: AsyncClient, kind: DocumentType[Any]) -> None:
    shipped = await client.get_document(kind)
    assert isinstance(shipped.document, kind.model)
    assert await client.get_document_if_changed(kind, etag=shipped.etag) is None

    stored = await client.replace_document(kind, shipped.document, if_match=shipped.etag)
    assert stored.document == shipped.document
    assert stored.etag != shipped.etag
    assert await client.get_document_if_changed(kind, etag=shipped.etag) == stored
    with pytest.raises(PreconditionFailedError):
        await client.replace_document(kind, shipped.document, if_match=shipped.etag)

    versions = [info async for info in client.iter_document_versions(kind)]
    assert [(info.version, info.etag) for info in versions] == [(1, stored.etag)]
    assert (await client.get_document_version(kind, 0)).document == shipped.document
    assert await client.get_document_version(kind, 1) == stored
    with pytest.raises(NotFoundError):
        await client.get_document_version(kind, 2)


async def test_plans_are_created_once_per_key_and_read_back(
    client: AsyncClient, sqlite_service: RunningService
) -> None:
    made = await client.create_plan(PLAN_REQUEST, idempotency_key="k")
    assert await client.create_plan(PLAN_REQUEST, idempotency_key="k") == made
    sqlite_service.clock.advance(1.0)
    other = await client.create_plan(PLAN_REQUEST)
    assert other.id != made.id
    assert await client.get_plan(made.id) == made
    assert [summary.id async for summary in client.iter_plans(limit=1)] == [other.id, made.id]


async def test_placements_are_created_once_per_key_and_read_back(
    client: AsyncClient, sqlite_service: RunningService
) -> None:
    made = await client.create_placement(PLACEMENT_REQUEST, idempotency_key="k")
    assert await client.create_placement(PLACEMENT_REQUEST, idempotency_key="k") == made
    assert await client.get_placement(made.id) == made
    sqlite_service.clock.advance(1.0)
    other = await client.create_placement(PLACEMENT_REQUEST)
    assert [summary.id async for summary in client.iter_placements(limit=1)] == [other.id, made.id]
    export_placement = json.loads(await client.export_placement(made.id, engine=Engine.SGLANG))
    assert export_placement == {
        "physical_to_logical_map": [list(row) for row in made.placement.physical_to_logical_map]
    }


async def test_power_trees_and_budgets_are_created_replaced_and_deleted(
    client: AsyncClient, sqlite_service: RunningService
) -> None:
    made = await client.create_power_tree(TREE)
    assert made.document.tree == TREE
    assert await client.get_power_tree("north") == made
    assert [tree async for tree in client.iter_power_trees()] == [made.document]

    soon = BUDGET.model_copy(update={"expires_at": sqlite_service.clock.now() + timedelta(minutes=5)})
    first = await client.create_power_budget("row-1", soon)
    more = soon.model_copy(update={"limit_w": 160_000.0})
    second = await client.replace_power_budget("row-1", more, if_match=first.etag)
    with pytest.raises(InvalidRequestError, match="limit_w: is above the rating"):
        await client.replace_power_budget("row-1", soon.model_copy(update={"limit_w": 300_000.0}), if_match=second.etag)
    assert await client.get_power_budget("row-1") == second
    assert [budget async for budget in client.iter_power_budgets()] == [second.document]

    with pytest.raises(InvalidRequestError, match="delete that before the domain goes"):
        await client.delete_power_tree("north", if_match=made.etag)
    await client.delete_power_budget("row-1", if_match=second.etag)
    await client.delete_power_tree("north", if_match=made.etag)
    with pytest.raises(NotFoundError):
        await client.get_power_budget("row-1")


async def test_power_simulations_and_plans_are_created_once_per_key_and_read_back(client: AsyncClient) -> None:
    simulated = await client.create_power_simulation(SIMULATION_REQUEST, idempotency_key="k")
    assert await client.create_power_simulation(SIMULATION_REQUEST, idempotency_key="k") == simulated
    assert await client.get_power_simulation(simulated.id) == simulated
    assert [summary.id async for summary in client.iter_power_simulations()] == [simulated.id]

    planned = await client.create_power_plan(CapPlanRequest(tree=TREE), idempotency_key="p")
    assert await client.get_power_plan(planned.id) == planned
    assert [summary.id async for summary in client.iter_power_plans()] == [planned.id]


async def test_targets_are_created_replaced_and_deleted(client: AsyncClient) -> None:
    created = await client.create_target("chat", SPEC)
    assert created.document.spec == SPEC
    with pytest.raises(PreconditionFailedError):
        await client.create_target("chat", SPEC)
    assert await client.get_target("chat") == created

    changed = SPEC.model_copy(update={"max_step": 3})
    replaced = await client.replace_target("chat", changed, if_match=created.etag)
    assert (replaced.document.version, replaced.document.spec.max_step) == (2, 3)
    assert [target async for target in client.iter_targets()] == [replaced.document]

    with pytest.raises(NotFoundError):
        await client.get_target_status("chat")
    await client.report_target_status("chat", STATUS)
    assert await client.get_target_status("chat") == STATUS

    with pytest.raises(PreconditionFailedError):
        await client.delete_target("chat", if_match=created.etag)
    await client.delete_target("chat", if_match=replaced.etag)
    with pytest.raises(NotFoundError):
        await client.get_target("chat")


async def test_the_freeze_is_replaced_under_its_etag(client: AsyncClient) -> None:
    thawed = await client.get_freeze()
    assert not thawed.document.frozen
    frozen = await client.replace_freeze(Freeze(frozen=True, reason="audit"), if_match=thawed.etag)
    assert await client.get_freeze() == frozen
    with pytest.raises(PreconditionFailedError):
        await client.replace_freeze(Freeze(), if_match=thawed.etag)


async def test_a_cancelled_call_does_not_block_the_next_write(client: AsyncClient) -> None:
    """Wherever the caller is cancelled, the request ends by itself and releases the database."""
    claim = LeaseClaim(holder="a", lease_s=5.0)
    await client.create_lease("controller", claim)
    for passes in range(0, 80, 2):
        call = asyncio.create_task(client.replace_lease("controller", claim, if_match="*"))
        for _ in range(passes):  # of the event loop
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        async with asyncio.timeout(5.0):  # a locked database blocks a write for ten seconds
            await client.replace_lease("controller", claim, if_match="*")


async def test_tokens_work_until_they_are_revoked(client: AsyncClient, sqlite_service: RunningService) -> None:
    made = await client.create_token(TOKEN_REQUEST)
    transport = InProcessTransport(sqlite_service.app)
    async with AsyncClient(BASE_URL, token=made.secret, transport=transport) as reader:
        await reader.get_freeze()
        with pytest.raises(ForbiddenError, match="scope 'operate' is needed"):
            await reader.replace_freeze(Freeze(), if_match="*")
        await client.revoke_token(made.info.id)
        with pytest.raises(UnauthorizedError):
            await reader.get_freeze()
    assert made.info.id in {token.id async for token in client.iter_tokens()}


async def test_the_audit_is_read_and_checked(client: AsyncClient) -> None:
    await client.create_target("chat", SPEC)
    entries = [entry async for entry in client.iter_audit(limit=1)]
    assert [entry.seq for entry in entries] == list(range(len(entries), 0, -1))
    assert [entry.action for entry in entries if entry.subject == "targets/chat"] == ["target.created"]
    check = await client.check_audit()
    assert check.intact
    assert check.entries >= len(entries), "the first token may have been made meanwhile"


async def test_without_a_token_only_health_checks_are_allowed(sqlite_service: RunningService) -> None:
    async with asynchronous(sqlite_service, None) as anonymous:
        await anonymous.check_ready()
        with pytest.raises(UnauthorizedError, match="401 Unauthorized: a token is needed"):
            await anonymous.get_freeze()


async def test_an_invalid_request_is_reported_by_field(client: AsyncClient) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await client.create_target("chat", SPEC.model_copy(update={"plan_id": "no-such-plan"}))
    assert [error.path for error in caught.value.problem.errors] == ["plan_id"]


async def test_the_blocking_client_performs_the_same_operations(sqlite_service: RunningService) -> None:
    def work() -> None:
        with Client(BASE_URL, token=TOKENS[TokenScope.ADMIN], transport=FromThread(sqlite_service)) as client:
            client.check_ready()
            offers = client.get_document(OFFERS)
            assert client.replace_document(OFFERS, offers.document, if_match=offers.etag).document == offers.document
            plan = client.create_plan(PLAN_REQUEST)
            target = client.create_target("chat", SPEC.model_copy(update={"plan_id": plan.id}))
            client.report_target_status("chat", STATUS)
            assert client.get_target_status("chat") == STATUS
            assert list(client.iter_targets()) == [target.document]
            with pytest.raises(PreconditionFailedError):
                client.delete_target("chat", if_match='"9-z"')
            assert client.check_audit().intact

    await anyio.to_thread.run_sync(work)


async def test_a_diagnosis_quarantines_a_node(client: AsyncClient, sqlite_service: RunningService) -> None:
    kept = await client.report_diagnosis(REPORT, idempotency_key="k")
    assert await client.report_diagnosis(REPORT, idempotency_key="k") == kept
    assert await client.get_diagnosis(kept.id) == kept
    assert (await client.get_diagnosis_bundle(kept.id)).decode() == bundle_text()
    assert (await client.replay_diagnosis_bundle(kept.id)).same
    rules = await client.get_quarantine_rules()
    raised = rules.document.rules.model_copy(update={"mode": PolicyMode.APPLY})
    await client.replace_quarantine_rules(raised, if_match=rules.etag)
    sqlite_service.clock.advance(1.0)  # ids sort by time
    crash = await client.report_diagnosis(DiagnosisReport.model_validate(node_diagnosis("gpu-7")))
    outcome = await client.evaluate_quarantine(EVALUATION, idempotency_key="l")
    assert outcome.out_of_service == ("gpu-7",)
    assert crash.id in {decision.diagnosis_id for decision in outcome.decisions}
    assert await client.evaluate_quarantine(EVALUATION, idempotency_key="l") == outcome
    assert (await client.request_node_action("gpu-7", OperatorAction.RELEASE)).pending_action is OperatorAction.RELEASE
    withdrawn = await client.set_diagnosis_expiry(crash.id, expires_in_s=0.0)
    assert withdrawn.expires_at == sqlite_service.clock.at
    assert (await client.evaluate_quarantine(EVALUATION)).out_of_service == ()
    assert {node.node: node.state for node in (await client.get_quarantine()).nodes}["gpu-7"] is NodeState.PROBATION
    with pytest.raises(ConflictError):
        await client.reset_quarantine_breaker()
    assert [each.id async for each in client.iter_diagnoses()] == [crash.id, kept.id]


async def test_fault_simulations_are_created_once_per_key(client: AsyncClient) -> None:
    made = await client.create_fault_simulation(FAULT_SIMULATION, idempotency_key="s")
    assert await client.create_fault_simulation(FAULT_SIMULATION, idempotency_key="s") == made
    assert await client.get_fault_simulation(made.id) == made
    assert [each.id async for each in client.iter_fault_simulations()] == [made.id]
