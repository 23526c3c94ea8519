"""Renames diagnoses, quarantine state, remediation cases and parts of targets, as a part of revision r0006."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

from api.store.canonical import canonical_json
from api.store.migrations.results_0006 import renamed

MOMENT = sa.DateTime(timezone=True)
Json = dict[str, Any]

REPORT = {"verdict": "diagnosis", "believed_for_s": "expires_in_s"}
RULES = {"probation_s": "cooldown_s", "longest_wait_s": "max_cooldown_s", "watch_s": "probation_s"}
POLICY = {
    "went_s": "quarantined_s",
    "wishes": "operator_actions",
    "close_breaker": "reset_breaker",
}
RECORD = {
    "standing": "state",
    "accusation": "diagnosis_id",
    "accused_s": "suspected_s",
    "isolated_s": "strikes_s",
    "passed": "probes_passed",
    "failed": "probes_failed",
    "refused": "refused_by",
    "answered": "resolved",
}
DECISION = {"act": "kind", "accusation": "diagnosis_id"}
CASE = {
    "accusation": "diagnosis_id",
    "patient": "can_checkpoint",
    "phase_since": "since",
    "acts": "actions",
}
STATES = {"isolated": "quarantined", "watched": "probation", "kept-out": "cordoned"}
KINDS = {"isolate": "quarantine", "keep-out": "cordon"}
GUARDRAILS = {"answered": "resolved"}
HOOKS = {"hook-probation": "hook-probe-only"}
# The phase of a case, and its state and stage.  A stage before `replaced` had no state beside it.
PHASES = {
    "wanted": ("quarantined", "requested"),
    "draining": ("quarantined", "draining"),
    "evacuating": ("quarantined", "evacuating"),
    "migrating": ("quarantined", "migrating"),
    "restarting": ("quarantined", "restarting"),
    "replaced": ("quarantined", "replaced"),
    "probing": ("probing", "replaced"),
    "released": ("probation", "replaced"),
    "kept": ("cordoned", "replaced"),
}
OUT_OF_SERVICE = ("quarantined", "probing", "cordoned")
ROUTER = {"most_in_flight": "max_in_flight"}
STATE = {"licence": "approval_grant"}
TARGETS = {"targets": "targets"}
DOCUMENTS = {"isolation-rules": "quarantine-rules", "healing-cases": "remediation-cases"}
LEASES = {"healer": "remediation"}


def upgrade_faults() -> None:
    """Rename tables, columns, kinds of documents, and the keys and values of stored JSON."""
    _diagnoses(
        old=("fault_verdicts", "believed_until"),
        new=("diagnoses", "expires_at"),
        convert=lambda report: renamed(report, REPORT),
    )
    _policy(
        old=("isolation", "looked_at", "looked_by"),
        new=("quarantine", "evaluated_at", "evaluated_by"),
        convert=_policy_up,
    )
    _documents(DOCUMENTS, {"isolation-rules": lambda rules: renamed(rules, RULES), "healing-cases": _case_up})
    _documents(TARGETS, {"targets": lambda target: _target(target, ROUTER)})
    _statuses(lambda status: _status(status, key=("memory", "state"), names=STATE))
    _leases(LEASES)


def downgrade_faults() -> None:
    """Restore the names before this revision."""
    _leases(_inverse(LEASES))
    _statuses(lambda status: _status(status, key=("state", "memory"), names=_inverse(STATE)))
    _documents(TARGETS, {"targets": lambda target: _target(target, _inverse(ROUTER))})
    _documents(
        _inverse(DOCUMENTS),
        {"quarantine-rules": lambda rules: renamed(rules, _inverse(RULES)), "remediation-cases": _case_down},
    )
    _policy(
        old=("quarantine", "evaluated_at", "evaluated_by"),
        new=("isolation", "looked_at", "looked_by"),
        convert=_policy_down,
    )
    _diagnoses(
        old=("diagnoses", "expires_at"),
        new=("fault_verdicts", "believed_until"),
        convert=lambda report: renamed(report, _inverse(REPORT)),
    )


def _diagnoses(*, old: tuple[str, str], new: tuple[str, str], convert: Callable[[Json], Json]) -> None:
    (old_table, old_expiry), (new_table, new_expiry) = old, new
    table = op.create_table(
        new_table,
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("job", sa.String(500), nullable=False),
        sa.Column("fault", sa.String(16), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column(new_expiry, MOMENT, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        sa.Column("bundle_sha256", sa.String(64)),
        sa.Column("bundle", sa.LargeBinary),
        sa.PrimaryKeyConstraint("id", name=f"pk_{new_table}"),
    )
    # The bundles are large, so the database copies the rows itself.
    names = [column.name for column in table.columns]
    source = sa.table(old_table, *(sa.column(old_expiry if name == new_expiry else name) for name in names))
    op.execute(sa.insert(table).from_select(names, sa.select(*source.columns)))
    for row in op.get_bind().execute(sa.select(table.c.id, table.c.report)).all():
        report = canonical_json(convert(json.loads(row.report)))
        op.execute(sa.update(table).where(table.c.id == row.id).values(report=report))
    op.drop_index(f"ix_{old_table}_{old_expiry}", old_table)
    op.drop_table(old_table)
    op.create_index(f"ix_{new_table}_{new_expiry}", new_table, [new_expiry])


def _policy(*, old: tuple[str, str, str], new: tuple[str, str, str], convert: Callable[[Json], Json]) -> None:
    table = op.create_table(
        new[0],
        sa.Column("id", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column(new[1], MOMENT, nullable=False),
        sa.Column(new[2], sa.String(200), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{new[0]}"),
    )
    names = ["id", new[1], new[2], "body"]
    source = sa.table(old[0], *(sa.column(name) for name in ("id", old[1], old[2], "body")))
    op.execute(sa.insert(table).from_select(names, sa.select(*source.columns)))
    for row in op.get_bind().execute(sa.select(table.c.id, table.c.body)).all():
        body = canonical_json(convert(json.loads(row.body)))
        op.execute(sa.update(table).where(table.c.id == row.id).values(body=body))
    op.drop_table(old[0])


def _documents(kinds: Mapping[str, str], convert: Mapping[str, Callable[[Json], Json]]) -> None:
    table = sa.table("documents", *(sa.column(name) for name in ("kind", "name", "version", "body")))
    for old, new in kinds.items():
        rows = op.get_bind().execute(sa.select(table).where(table.c.kind == old)).all()
        for row in rows:
            body = None if row.body is None else canonical_json(convert[old](json.loads(row.body)))
            this = (table.c.kind == old) & (table.c.name == row.name) & (table.c.version == row.version)
            op.execute(sa.update(table).where(this).values(kind=new, body=body))


def _statuses(convert: Callable[[Json], Json]) -> None:
    table = sa.table("target_status", sa.column("target"), sa.column("body"))
    for row in op.get_bind().execute(sa.select(table)).all():
        body = canonical_json(convert(json.loads(row.body)))
        op.execute(sa.update(table).where(table.c.target == row.target).values(body=body))


def _leases(names: Mapping[str, str]) -> None:
    table = sa.table("leases", sa.column("name"))
    for old, new in names.items():
        op.execute(sa.update(table).where(table.c.name == old).values(name=new))


def _target(target: Json, names: Mapping[str, str]) -> Json:
    """Rename in the router of a Serve application; targets of other kinds have none."""
    application: Json = target["application"]
    if (router := application.get("router")) is None:
        return target
    return {**target, "application": {**application, "router": renamed(router, names)}}


def _status(status: Json, *, key: tuple[str, str], names: Mapping[str, str]) -> Json:
    """Rename the state of a target in its status, and keys of the state."""
    old, new = key
    after = renamed(status, {old: new})
    return {**after, new: renamed(after[new], names)} if after.get(new) else after


def _policy_up(body: Json) -> Json:
    body = renamed(body, POLICY)
    body["breaker"] = renamed(body["breaker"], {"accused_s": "suspected_s"})
    body["nodes"] = {name: _record(record, RECORD, STATES, GUARDRAILS) for name, record in body["nodes"].items()}
    body["operator_actions"] = {node: KINDS.get(action, action) for node, action in body["operator_actions"].items()}
    body["decisions"] = [_decision(each, DECISION, KINDS) for each in body["decisions"]]
    return body


def _policy_down(body: Json) -> Json:
    record, states, guardrails = _inverse(RECORD), _inverse(STATES), _inverse(GUARDRAILS)
    kinds = _inverse(KINDS)
    body = renamed(body, _inverse(POLICY))
    body["breaker"] = renamed(body["breaker"], {"suspected_s": "accused_s"})
    body["nodes"] = {name: _record(each, record, states, guardrails) for name, each in body["nodes"].items()}
    body["wishes"] = {node: kinds.get(action, action) for node, action in body["wishes"].items()}
    body["decisions"] = [_decision(each, _inverse(DECISION), kinds) for each in body["decisions"]]
    return body


def _record(record: Json, names: Mapping[str, str], states: Mapping[str, str], guardrails: Mapping[str, str]) -> Json:
    values = {
        "state": states,
        "standing": states,
        "refused_by": guardrails,
        "refused": guardrails,
    }
    after = renamed(record, names)
    return {key: values[key].get(value, value) if key in values else value for key, value in after.items()}


def _decision(decision: Json, names: Mapping[str, str], kinds: Mapping[str, str]) -> Json:
    after = renamed(decision, names)
    return {key: kinds.get(value, value) if key in ("kind", "act") else value for key, value in after.items()}


def _case_up(case: Json) -> Json:
    after = renamed(case, CASE)
    after["state"], after["stage"] = PHASES[after.pop("phase")]
    after["actions"] = [_action(each, {"act": "action"}, HOOKS) for each in after.get("actions", [])]
    return after


def _case_down(case: Json) -> Json:
    after = renamed(case, _inverse(CASE))
    state, stage = after.pop("state"), after.pop("stage")
    after["phase"] = _phase(state, stage)
    after["acts"] = [_action(each, {"action": "act"}, _inverse(HOOKS)) for each in after.get("acts", [])]
    return after


def _phase(state: str, stage: str) -> str:
    if state not in OUT_OF_SERVICE:
        return "released"
    if stage == "replaced":
        return next(phase for phase, found in PHASES.items() if found == (state, stage))
    return next(phase for phase, found in PHASES.items() if found[1] == stage)


def _action(action: Json, names: Mapping[str, str], values: Mapping[str, str]) -> Json:
    after = renamed(action, names)
    return {key: values.get(value, value) if key in ("action", "act") else value for key, value in after.items()}


def _inverse(names: Mapping[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}
