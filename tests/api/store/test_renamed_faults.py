"""Revision r0006 keeps diagnoses, quarantine state and rules, remediation cases, targets and their status readable."""

from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from api.jobs.diagnoses import read_report
from api.schemas.applications import RayServeApplication, ServeRouter
from api.schemas.remediation import CaseSpec, RemediationStage
from api.schemas.target_state import ApprovalGrant, TargetState
from api.schemas.targets import TargetSpec, TargetStatus
from api.server.quarantine import parsed
from api.store import DiagnosisHead, Migrations, QuarantineRecord, Store, canonical_json
from api.store.engine import make_migration_engine, parse_url
from faults.quarantine import NodeState, OperatorAction, QuarantineRules

pytestmark = pytest.mark.anyio

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
DIAGNOSIS: dict[str, Any] = {
    "fault": "noncomm-hang",
    "scope": "rank",
    "node": 1,
    "onset_s": 1.0,
    "detected_s": 2.0,
    "isolate": True,
    "confidence": 0.99,
    "reason": "rank 1 is stopped",
}
RECORD: dict[str, Any] = {
    "standing": "kept-out",
    "since_s": 5.0,
    "accusation": "v-1",
    "accused_s": 4.0,
    "dry_run": False,
    "isolated_s": [3.0, 5.0],
    "passed": 1,
    "failed": 2,
    "probe_at_s": 9.0,
    "refused": "answered",
    "declined": None,
    "answered": "v-0",
    "pool": "train",
    "domains": ["rack0"],
}
POLICY_STATE: dict[str, Any] = {
    "nodes": {"a": RECORD, "b": {**RECORD, "standing": "watched"}},
    "breaker": {"accused_s": {"a": 4.0}, "opened_s": None},
    "went_s": [5.0],
    "members": ["a", "b"],
    "wishes": {"b": "keep-out"},
    "close_breaker": True,
    "decisions": [
        {
            "at": "2026-11-20T12:00:00Z",
            "act": "isolate",
            "node": "a",
            "reason": "stopped",
            "accusation": "v-1",
            "dry_run": False,
        }
    ],
}
RULES = {"mode": "apply", "probation_s": 60.0, "longest_wait_s": 600.0, "watch_s": 120.0}
CASE: dict[str, Any] = {
    "node": "a",
    "accusation": "v-1",
    "patient": True,
    "phase": "kept",
    "phase_since": "2026-11-20T12:00:00Z",
    "opened_at": "2026-11-20T11:00:00Z",
    "acts": [{"at": "2026-11-20T11:30:00Z", "act": "hook-probation", "detail": "done"}],
}

SERVE = {"kind": "ray_serve", "dashboard_url": "http://ray:8265", "application": "chat", "deployments": {"L4": "on-l4"}}
TRAINING = {"kind": "ray_train", "run": "llm", "gpu": "L4"}
TARGETS: dict[str, dict[str, Any]] = {
    "a": {"workload": "chat", "application": {**SERVE, "router": {"most_in_flight": {"on-l4": 7}}}},
    "b": {"workload": "chat", "application": {**SERVE, "router": None}},
    "c": {"workload": "chat", "application": TRAINING},
}
GRANT = {"plan_id": "p-2", "target_version": 1}
STATUS = {"phase": "applying", "observed_at": "2026-11-20T12:00:00Z"}
STATUSES: dict[str, dict[str, Any]] = {
    "a": {**STATUS, "memory": {"approvals_used": 2, "licence": GRANT, "verified_plan_id": "p-1"}},
    "b": {**STATUS, "memory": {"refused": {**GRANT, "at": "2026-11-20T11:00:00Z", "reason": "worse"}}},
    "c": STATUS,
}


def rows(url: str, table: str) -> list[tuple[Any, ...]]:
    engine = make_migration_engine(parse_url(url))
    with engine.begin() as connection:
        found = [tuple(row) for row in connection.execute(sa.select(sa.text("*")).select_from(sa.table(table)))]
    engine.dispose()
    return sorted(found, key=str)


def fill(url: str) -> None:
    """A database of revision r0005."""
    engine = make_migration_engine(parse_url(url))
    moment = AT.replace(tzinfo=None).isoformat(sep=" ") if url.startswith("sqlite") else AT
    report = {"job": "llm", "verdict": DIAGNOSIS, "nodes": {"1": "a"}, "domains": [], "believed_for_s": 60.0}
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO fault_verdicts VALUES ('v-1', :at, 'me', 'llm', 'noncomm-hang', 'rank', :at, :report,"
                " 'abc', :bundle)"
            ),
            {"at": moment, "report": canonical_json(report), "bundle": b"packed"},
        )
        connection.execute(
            sa.text("INSERT INTO isolation VALUES (1, :at, 'me', :body)"),
            {"at": moment, "body": canonical_json(POLICY_STATE)},
        )
        for kind, name, version, body in (
            ("isolation-rules", "default", 1, canonical_json(RULES)),
            ("healing-cases", "v-1", 1, canonical_json(CASE)),
            ("healing-cases", "v-1", 2, None),
            *(("targets", name, 1, canonical_json(body)) for name, body in TARGETS.items()),
        ):
            connection.execute(
                sa.text("INSERT INTO documents VALUES (:kind, :name, :version, :body, :at, 'me')"),
                {"kind": kind, "name": name, "version": version, "body": body, "at": moment},
            )
        for name, status in STATUSES.items():
            connection.execute(
                sa.text("INSERT INTO target_status VALUES (:name, :at, :body)"),
                {"name": name, "at": moment, "body": canonical_json(status)},
            )
        connection.execute(sa.text("INSERT INTO leases VALUES ('healer', 'h', 3, 7, 10.0)"))
    engine.dispose()


async def test_stored_faults_get_their_new_names_and_a_downgrade_restores_the_old_ones(
    empty_database_url: str,
) -> None:
    migrations = Migrations(empty_database_url)
    migrations.upgrade("r0005")
    fill(empty_database_url)
    tables = ("fault_verdicts", "isolation", "documents", "target_status", "leases")
    before = {name: rows(empty_database_url, name) for name in tables}

    migrations.upgrade()
    store = Store(empty_database_url)
    async with store.reading() as tx:
        head = await tx.diagnoses.get("v-1")
        assert head is not None
        check_diagnosis(head)
        assert await tx.diagnoses.bundle("v-1") == b"packed"
        record = await tx.quarantine.get()
        assert record is not None
        check_policy(record)
        rules = await tx.documents.head(kind="quarantine-rules", name="default")
        assert rules is not None
        found = QuarantineRules.model_validate_json(rules.body or "")
        assert (found.cooldown_s, found.max_cooldown_s, found.probation_s) == (60.0, 600.0, 120.0)
        case = await tx.documents.get(kind="remediation-cases", name="v-1", version=1)
        assert case is not None
        check_case(CaseSpec.model_validate_json(case.body or ""))
        deleted = await tx.documents.head(kind="remediation-cases", name="v-1")
        assert deleted is not None
        assert (deleted.version, deleted.body) == (2, None)
        targets = [await tx.documents.head(kind="targets", name=name) for name in TARGETS]
        check_targets([target.body or "" for target in targets if target is not None])
        statuses = [await tx.statuses.get(name) for name in STATUSES]
        check_statuses([status.body for status in statuses if status is not None])
    await store.close()
    assert rows(empty_database_url, "leases") == [("remediation", "h", 3, 7, 10.0, None, None, None)]

    migrations.downgrade("r0005")
    after = {name: rows(empty_database_url, name) for name in tables}
    assert after == before


def check_diagnosis(head: DiagnosisHead) -> None:
    assert (head.expires_at, head.job, head.bundle_sha256) == (AT, "llm", "abc")
    report = read_report(head)
    assert (report.expires_in_s, report.diagnosis.reason) == (60.0, "rank 1 is stopped")


def check_targets(bodies: list[str]) -> None:
    serve, *others = [TargetSpec.model_validate_json(body) for body in bodies]
    assert isinstance(serve.application, RayServeApplication)
    assert serve.application.router == ServeRouter(max_in_flight={"on-l4": 7})
    assert others == [TargetSpec.model_validate(TARGETS[name]) for name in ("b", "c")]


def check_statuses(bodies: list[str]) -> None:
    states = [TargetStatus.model_validate_json(body).state for body in bodies]
    assert states[0] == TargetState(
        approvals_used=2, approval_grant=ApprovalGrant.model_validate(GRANT), verified_plan_id="p-1"
    )
    assert states[1] is not None
    assert states[1].refused is not None
    assert (states[1].refused.reason, states[2]) == ("worse", None)


def check_policy(record: QuarantineRecord) -> None:
    stored = parsed(record)
    node = stored.state.nodes["a"]
    assert (node.state, node.diagnosis_id, node.suspected_s) == (NodeState.CORDONED, "v-1", 4.0)
    assert (node.strikes_s, node.probes_passed, node.probes_failed) == ((3.0, 5.0), 1, 2)
    assert (node.refused_by, node.resolved, node.domains) == ("resolved", "v-0", ("rack0",))
    assert stored.state.nodes["b"].state is NodeState.PROBATION
    assert (dict(stored.state.breaker.suspected_s), stored.state.quarantined_s) == ({"a": 4.0}, (5.0,))
    assert (dict(stored.operator_actions), stored.reset_breaker) == ({"b": OperatorAction.CORDON}, True)
    (decision,) = stored.decisions
    assert (decision["kind"], decision["diagnosis_id"]) == ("quarantine", "v-1")


def check_case(case: CaseSpec) -> None:
    assert (case.progress, case.diagnosis_id, case.can_checkpoint) == (
        (NodeState.CORDONED, RemediationStage.REPLACED),
        "v-1",
        True,
    )
    assert [each.action for each in case.actions] == ["hook-probe-only"]
