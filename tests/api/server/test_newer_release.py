"""A replica serves what a replica of a newer release has stored: documents and reports with fields it does not know."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from api.schemas.faults import DiagnosisReport
from api.schemas.placements import PLACEMENTS
from api.schemas.planning_loops import LoopState, PlanningLoopSpec, PlanningLoopStatus
from api.schemas.power import POWER_PLANS, PowerBudget
from api.schemas.remediation import CaseSpec
from api.schemas.results import ResultType
from api.schemas.targets import Freeze, TargetSpec, TargetStatus
from api.server.catalogues import ALL
from api.server.examples import bodies
from api.store import DiagnosisHead, DocumentRecord, QuarantineRecord, StatusRecord, Store, Transaction, new_id
from faults.quarantine import QuarantineRules
from fleet.documents import read_stored
from fleet.stock import Stock
from placement.document import Placement
from planner.request import PlanRequest
from power.caps import CapPlan
from power.tree import PowerTree
from tests.api.server.test_fencing import claim
from tests.api.server.test_placements import placement_request
from tests.api.server.test_plans import plan_request
from tests.api.server.test_power import tree
from tests.api.server.test_quarantine import observed, set_rules
from tests.api.server.test_remediation import case
from tests.api.server.test_targets import CREATE, SPEC, STATUS
from tests.testbed.fault_bundles import node_diagnosis
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

TARGET = SPEC | {"demand": bodies()["put_target"]["demand"]}
ADDED = {"added_later": {"by": ["a newer release"]}}
MODELS: dict[str, type[BaseModel]] = {
    "targets": TargetSpec,
    "planning-loops": PlanningLoopSpec,
    "power-trees": PowerTree,
    "power-budgets": PowerBudget,
    "stocks": Stock,
    "remediation-cases": CaseSpec,
    "freeze": Freeze,
    "quarantine-rules": QuarantineRules,
    **{catalogue.kind.value: catalogue.model for catalogue in ALL},
}
NAMES = {
    "targets": "chat",
    "planning-loops": "chat",
    "power-trees": "north",
    "power-budgets": "row-1",
    "stocks": "prod",
    "remediation-cases": "c-1",
}
BUDGET = {"limit_w": 150_000.0, "expires_at": "2026-11-21T13:00:00Z"}
PATHS = (
    "/v1/gpus",
    "/v1/models",
    "/v1/offers",
    "/v1/topology",
    "/v1/freeze",
    "/v1/targets",
    "/v1/targets/chat",
    "/v1/targets/chat/status",
    "/v1/planning-loops",
    "/v1/planning-loops/chat",
    "/v1/planning-loops/chat/status",
    "/v1/planning-loop-statuses",
    "/v1/power/trees",
    "/v1/power/trees/north",
    "/v1/power/budgets",
    "/v1/power/budgets/row-1",
    "/v1/stock",
    "/v1/stock/prod",
    "/v1/faults/cases",
    "/v1/faults/cases/c-1",
    "/v1/faults/diagnoses",
    "/v1/faults/quarantine",
    "/v1/faults/quarantine/rules",
    "/metrics",
)


def with_added_fields(value: Any) -> Any:
    """Return the JSON of a value with one more field on every level; in a plan request on the top level only."""
    if isinstance(value, PlanRequest):
        return value.model_dump(mode="json") | ADDED
    if isinstance(value, BaseModel):
        return {name: with_added_fields(getattr(value, name)) for name in type(value).model_fields} | ADDED
    if isinstance(value, tuple | list):
        return [with_added_fields(item) for item in value]
    if isinstance(value, dict):
        return {key: with_added_fields(item) for key, item in value.items()}
    return to_jsonable_python(value)


async def test_fields_of_a_newer_release_are_ignored(service: RunningService) -> None:
    store: Store = service.app.state.service.store
    async with service.client() as admin:
        await fill(admin)
        async with store.transaction() as tx:
            for kind, model in MODELS.items():
                await rewrite_document(tx, kind, model)
            await rewrite_reports(tx)
            await rewrite_quarantine(tx)
        answers = {path: await admin.get(path) for path in PATHS}
        evaluated = await admin.post("/v1/faults/quarantine/evaluations", json=observed())
        reported = await admin.put("/v1/targets/chat/status", json=STATUS)
        await set_plan_of_loop(admin)
        async with store.reading() as tx:
            target = await tx.documents.head(kind="targets", name="chat")
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(PATHS, 200)
    assert (evaluated.status_code, reported.status_code) == (200, 204)
    assert "fleetwright_database_up 1.0" in answers["/metrics"].text.splitlines()
    assert (
        answers["/v1/targets/chat"].json()["spec"]["application"]["deployments"] == SPEC["application"]["deployments"]
    )
    assert answers["/v1/faults/quarantine"].json()["out_of_service"] == ["gpu-1"]
    assert target is not None
    assert (target.version, ADDED.items() <= json.loads(target.body or "").items()) == (3, True), "kept by a loop"


async def set_plan_of_loop(admin: httpx.AsyncClient) -> None:
    plan = await admin.post("/v1/plans", json=plan_request())
    term = await claim(admin, "controller", "a", CREATE)
    body = {"plan_id": plan.json()["id"], "loop_version": 2, "expected_plan_ids": {"chat": None}}
    under = {"Fleetwright-Lease": f"controller/{term}"}
    answer = await admin.post("/v1/planning-loops/chat/plan", json=body, headers=under)
    assert answer.status_code == 200, answer.text


async def test_results_of_a_newer_release_are_listed_exported_and_measured(sqlite_service: RunningService) -> None:
    store: Store = sqlite_service.app.state.service.store
    async with sqlite_service.client() as admin:
        await admin.post("/v1/power/plans", json={"tree": tree()})
        await admin.post("/v1/placements", json=placement_request())
        async with store.transaction() as tx:
            ids = [await add_newer_result(tx, POWER_PLANS, CapPlan), await add_newer_result(tx, PLACEMENTS, Placement)]
        listed = [await admin.get(f"/v1/{path}") for path in ("power/plans", "placements")]
        exported = await admin.get(f"/v1/placements/{ids[1]}/export", params={"engine": "vllm"})
        metrics = await admin.get("/metrics")
    assert [answer.status_code for answer in (*listed, exported, metrics)] == [200] * 4
    assert [answer.json()["items"][0]["id"] for answer in listed] == ids
    assert "fleetwright_database_up 1.0" in metrics.text.splitlines()


async def add_newer_result(tx: Transaction, kind: ResultType[Any, Any, Any], model: type[BaseModel]) -> str:
    """Store the newest result of a kind again, under a later id and with added fields."""
    (head,) = await tx.results.page(kind=kind.name, before_id=None, limit=1)
    stored = await tx.results.get(kind=kind.name, result_id=head.id)
    assert stored is not None
    summary = json.dumps(json.loads(head.summary) | ADDED)
    newer = replace(head, id=new_id(head.created_at + timedelta(seconds=1)), summary=summary)
    result = json.dumps(with_added_fields(read_stored(model, stored.result)))
    await tx.results.add(replace(stored, head=newer, result=result))
    return newer.id


async def fill(admin: Any) -> None:
    """Store one document of each kind, a report on a target, a diagnosis, and a quarantined node."""
    written = [
        await admin.put("/v1/targets/chat", json=TARGET, headers=CREATE),
        await admin.put("/v1/targets/chat/status", json=STATUS),
        await admin.put("/v1/planning-loops/chat", json=bodies()["put_planning_loop"], headers=CREATE),
        await admin.put("/v1/planning-loops/chat/status", json=bodies()["put_planning_loop_status"]),
        await admin.put("/v1/power/trees/north", json=tree(), headers=CREATE),
        await admin.put("/v1/power/budgets/row-1", json=BUDGET, headers=CREATE),
        await admin.put("/v1/stock/prod", json=bodies()["put_stock"], headers=CREATE),
        await admin.put("/v1/faults/cases/c-1", json=case("draining"), headers=CREATE),
        await set_rules(admin, mode="apply"),
        await admin.post("/v1/faults/diagnoses", json=node_diagnosis("gpu-1") | {"expires_in_s": 3600.0}),
        await admin.post("/v1/faults/quarantine/evaluations", json=observed()),
    ]
    for document in ("gpus", "models", "offers", "topology", "freeze"):
        found = await admin.get(f"/v1/{document}")
        written.append(
            await admin.put(f"/v1/{document}", json=found.json(), headers={"If-Match": found.headers["etag"]})
        )
    assert [answer.text for answer in written if not answer.is_success] == []


async def rewrite_document(tx: Transaction, kind: str, model: type[BaseModel]) -> None:
    head = await tx.documents.head(kind=kind, name=NAMES.get(kind, "default"))
    assert head is not None, kind
    await add_version(tx, head, json.dumps(with_added_fields(read_stored(model, head.body or ""))))


async def add_version(tx: Transaction, head: DocumentRecord, body: str) -> None:
    await tx.documents.add_version(
        kind=head.kind,
        name=head.name,
        after=head.version,
        body=body,
        created_at=head.created_at,
        created_by=head.created_by,
    )


async def rewrite_reports(tx: Transaction) -> None:
    status = await tx.statuses.get("chat")
    assert status is not None
    body = json.dumps(with_added_fields(read_stored(TargetStatus, status.body)))
    await tx.statuses.put(StatusRecord(target="chat", reported_at=status.reported_at, body=body))
    (loop,), state = await tx.loop_statuses.all(), await tx.loop_statuses.state("chat")
    newer_report = json.dumps(with_added_fields(read_stored(PlanningLoopStatus, loop.body)))
    newer_state = json.dumps(with_added_fields(read_stored(LoopState, state or "")))
    await tx.loop_statuses.put(replace(loop, body=newer_report), state=newer_state)
    (diagnosis,) = await tx.diagnoses.page(before_id=None, limit=10)
    report = json.dumps(with_added_fields(read_stored(DiagnosisReport, diagnosis.report)))
    newer: DiagnosisHead = replace(diagnosis, id=new_id(diagnosis.created_at), report=report)
    await tx.diagnoses.add(newer, bundle=None)


async def rewrite_quarantine(tx: Transaction) -> None:
    stored = await tx.quarantine.get()
    assert stored is not None
    state = json.loads(stored.body)
    assert state["nodes"]
    assert state["decisions"]
    state["nodes"] = {name: node | ADDED for name, node in state["nodes"].items()}
    state["decisions"] = [decision | ADDED for decision in state["decisions"]]
    body = json.dumps(state | ADDED | {"breaker": state["breaker"] | ADDED})
    await tx.quarantine.put(QuarantineRecord(stored.evaluated_at, stored.evaluated_by, body))
