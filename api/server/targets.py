"""Stores targets as a collection, the controller's reports on them, the operator's approvals, and the freeze."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from api.schemas.leases import CONTROLLER_LEASE, LeaseTerm
from api.schemas.plans import PLANS
from api.schemas.target_hosts import never_called, plain_address
from api.schemas.target_state import Approval, ApprovalRequest
from api.schemas.targets import Freeze, Mode, Target, TargetPreview, TargetSpec, TargetStatus
from api.schemas.wanted import WantedCounts
from api.server.auth import LOOPBACK
from api.server.collections import AuditVerbs, Collection, Entry, Preview
from api.server.differences import changes
from api.server.etags import Precondition
from api.server.fencing import refuse_stale
from api.server.problems import ProblemError, conflict, invalid, not_found
from api.server.projects import WHOLE_FLEET, ProjectAccess
from api.server.service import Service
from api.server.versioned import AuditAction, DocumentKey, DocumentVersion, current, replace
from api.store import StatusRecord, Transaction, canonical_json
from fleet.documents import read_stored

CHECKED_VERSIONS = 200  # of a target, for who has changed it since it has its plan
MAX_CLOCK_ERROR = timedelta(days=7)  # a controller with a wrong clock must still report

_PAGE_OF_METRICS: Final = re.compile(r"demand\.sources\.\d+\.parts\..+\.\d+$")

FREEZE = DocumentKey(kind="freeze", name="default", shipped=canonical_json(Freeze().model_dump(mode="json")))


async def write_freeze(service: Service, freeze: Freeze, *, precondition: Precondition, actor: str) -> DocumentVersion:
    detail = freeze.model_dump(mode="json")
    audit_action = AuditAction(
        action="fleet.frozen" if freeze.frozen else "fleet.thawed", subject="freeze", detail=detail
    )
    _before, after = await replace(
        service,
        FREEZE,
        body=canonical_json(detail),
        precondition=precondition,
        actor=actor,
        audit_action=lambda _before, _after: audit_action,
    )
    return after


async def is_frozen(tx: Transaction) -> bool:
    return read_stored(Freeze, (await current(tx, FREEZE)).body or "").frozen


async def _validate(service: Service, _name: str, spec: TargetSpec, project: ProjectAccess) -> None:
    _refuse_addresses(spec.model_dump(mode="json"))
    async with service.store.reading() as tx:
        await _require_plan(tx, spec.plan_id, project)


def _refuse_addresses(value: object, path: str = "") -> None:
    """Refuse addresses at which no target can be.  The controller checks again what names resolve to."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_addresses(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, str) and (path.endswith("url") or _PAGE_OF_METRICS.match(path)):
        host = (urlsplit(value).hostname or "").strip("[]")
        with suppress(ValueError):  # a name
            if (kind := never_called(plain_address(host))) is not None:
                raise invalid(path, f"{host} is {kind}; allowed: the address of a target")


async def _check_references(_service: Service, tx: Transaction, name: str, spec: TargetSpec | None) -> None:
    """Check that the plan exists, and remove the report on a deleted target."""
    await tx.audit.lock()  # first: a report locks it before it writes the status, and the removal of old plans too
    if spec is None:
        await tx.statuses.remove(name)
    else:
        await _require_plan(tx, spec.plan_id, WHOLE_FLEET)


async def _require_plan(tx: Transaction, plan_id: str | None, project: ProjectAccess) -> None:
    if plan_id is not None and not await tx.results.exists(kind=PLANS.name, result_id=plan_id, project=project.visible):
        raise invalid("plan_id", f"there is no plan {plan_id!r}; allowed: the id of a stored plan, or null")


def _preview(before: Entry[TargetSpec] | None, after: Entry[TargetSpec]) -> TargetPreview:
    spec = after.spec
    return TargetPreview(
        name=after.name,
        version=after.version,
        spec=spec,
        project=after.project,
        created=before is None,
        changes=changes(
            before.spec.model_dump(mode="json") if before is not None else None, spec.model_dump(mode="json")
        ),
        needs_approval=spec.mode is Mode.APPLY
        and spec.require_approval
        and (spec.plan_id is not None or bool(spec.expert_maps)),
    )


TARGETS = Collection(
    kind="targets",
    path="targets",
    label="target",
    verbs=AuditVerbs("target"),
    spec=TargetSpec,
    shown=Target,
    show=lambda found: Target(name=found.name, version=found.version, spec=found.spec, project=found.project),
    parse=partial(read_stored, TargetSpec),
    validate=_validate,
    check_references=_check_references,
    owned=True,
    preview=Preview(TargetPreview, _preview),
)


async def keep_report(
    service: Service,
    name: str,
    report: TargetStatus,
    *,
    actor: str,
    project: ProjectAccess = WHOLE_FLEET,
    held: LeaseTerm | None = None,
) -> None:
    """Store a report.  Where it has no state, the stored state and approval stay; so do the wanted counts."""
    refuse_absurd_time(report.observed_at, now=service.now())
    async with service.store.transaction() as tx:
        await tx.audit.lock()  # otherwise the target could be deleted between the read and the write
        target = await TARGETS.get(tx, name, project=project)
        await refuse_stale(tx, lease=CONTROLLER_LEASE, held=held, actor=actor)
        before = await read_report(tx, name)
        kept = {
            "state": report.state or (before.state if before is not None else None),
            "approval": before.approval if before is not None else None,
            "wanted": await _wanted(
                tx,
                target.spec,
                reported=report.wanted,
                stored=before.wanted if before is not None else None,
                now=service.now(),
            ),
        }
        report = report.model_copy(update=kept)
        await _put(tx, service, name, report, reported_by=actor)
        if before is None or _audited_part(before) != _audited_part(report):
            detail = report.model_dump(mode="json", exclude={"observed_at", "state", "approval", "wanted"})
            detail["verified_plan_id"] = _verified(report)
            if report.wanted is not None:
                detail["wanted"] = report.wanted.replicas
            await service.audit(
                tx,
                actor=actor,
                action="target.reported",
                subject=f"targets/{name}",
                detail=detail,
                project=target.project,
            )


async def approve(
    service: Service, name: str, request: ApprovalRequest, *, actor: str, project: ProjectAccess = WHOLE_FLEET
) -> Approval:
    """Store an approval of the ready change set; any other is refused, and so is that of who prepared the change."""
    async with service.store.transaction() as tx:
        await tx.audit.lock()
        target = await TARGETS.get(tx, name, project=project)
        spec = target.spec
        stored = await tx.statuses.get(name)
        report = read_stored(TargetStatus, stored.body) if stored is not None else None
        if report is None:
            raise not_found(f"report on target {name!r} yet")
        if not _is_ready(request, spec, report):
            raise _stale(name, spec, report)
        await _refuse_own(service, tx, name, spec, actor=actor, reported_by=stored.reported_by if stored else None)
        used = report.state.approvals_used if report.state is not None else 0
        last = report.approval
        if last is not None and last.number > used and last.digest == request.digest:
            return last
        approval = Approval(
            **request.model_dump(),
            number=max(used, last.number if last is not None else 0) + 1,
            approved_at=service.now(),
            approved_by=actor,
        )
        report_with_approval = report.model_copy(update={"approval": approval})
        await _put(tx, service, name, report_with_approval, reported_by=stored.reported_by if stored else None)
        await service.audit(
            tx,
            actor=actor,
            action="target.approved",
            subject=f"targets/{name}",
            detail=approval.model_dump(mode="json", include={"plan_id", "digest", "number"})
            | report.model_dump(mode="json", include={"changes", "settings", "expert_maps"}),
            project=target.project,
        )
        return approval


async def _wanted(
    tx: Transaction, spec: TargetSpec, *, reported: WantedCounts | None, stored: WantedCounts | None, now: datetime
) -> WantedCounts | None:
    """Return the counts to publish: the last ones stay while reconciles fail, or a freeze forbids other ones."""
    if spec.mode is not Mode.RECOMMEND or spec.plan_id is None:
        return None
    if reported is None:
        return stored
    if stored is None or stored.replicas != reported.replicas:
        freeze = read_stored(Freeze, (await current(tx, FREEZE)).body or "")
        if freeze.frozen:
            return stored
    return reported.model_copy(update={"at": now})


async def read_report(tx: Transaction, name: str) -> TargetStatus | None:
    """Return the last report on a target."""
    found = await tx.statuses.get(name)
    return read_stored(TargetStatus, found.body) if found is not None else None


async def _put(tx: Transaction, service: Service, name: str, report: TargetStatus, *, reported_by: str | None) -> None:
    # Without default values: a service of the previous release can then read it, unless it has new fields.
    body = canonical_json(report.model_dump(mode="json", exclude_defaults=True))
    await tx.statuses.put(StatusRecord(target=name, reported_at=service.now(), body=body, reported_by=reported_by))


async def _refuse_own(
    service: Service, tx: Transaction, name: str, spec: TargetSpec, *, actor: str, reported_by: str | None
) -> None:
    """Refuse the approval of an actor that prepared the change: one person alone must not bring it about."""
    if service.settings.self_approval or actor == LOOPBACK.actor:
        return
    if actor == reported_by:
        raise _own(f"{actor} reported this change set of target {name!r}")
    for version in await tx.documents.versions(kind=TARGETS.kind, name=name, before=None, limit=CHECKED_VERSIONS):
        if version.body is None or read_stored(TargetSpec, version.body).plan_id != spec.plan_id:
            return
        if version.created_by == actor:
            raise _own(f"{actor} wrote version {version.version} of target {name!r}, with plan {spec.plan_id}")
        if version.requested_by == actor:
            raise _own(f"{actor} wrote the planning loop that set plan {spec.plan_id} of target {name!r}")


def _own(detail: str) -> ProblemError:
    return ProblemError(
        status=HTTPStatus.FORBIDDEN,
        kind="own-change",
        detail=f"{detail}; another token with scope 'approve' must approve the change (or the setting self_approval)",
    )


def refuse_absurd_time(at: datetime, *, now: datetime) -> None:
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if abs(at - now) > MAX_CLOCK_ERROR:
        first, last = (now - MAX_CLOCK_ERROR, now + MAX_CLOCK_ERROR)
        allowed = f"allowed: {first:%Y-%m-%d %H:%M:%SZ} to {last:%Y-%m-%d %H:%M:%SZ}"
        raise invalid("observed_at", f"{allowed}, got {at.isoformat()}")


def _is_ready(request: ApprovalRequest, spec: TargetSpec, report: TargetStatus) -> bool:
    """Check that the last report offers this change set and the target still has the same plan."""
    refused = report.state.refused if report.state is not None else None
    offered = refused.plan_id if refused is not None else report.plan_id
    return report.digest == request.digest and offered == spec.plan_id == request.plan_id


def _stale(name: str, spec: TargetSpec, report: TargetStatus) -> ProblemError:
    ready = f"{report.digest} of plan {spec.plan_id}" if report.digest is not None else "none"
    return conflict(f"target {name!r}: another change set is ready than the one to approve; now: {ready}")


def _verified(report: TargetStatus) -> str | None:
    return report.state.verified_plan_id if report.state is not None else None


def _audited_part(report: TargetStatus) -> tuple[object, ...]:
    """Return the part of a report whose change is audited."""
    wanted = report.wanted.replicas if report.wanted is not None else None
    return report.phase, report.plan_id, report.planned, report.changes, report.settings, _verified(report), wanted
