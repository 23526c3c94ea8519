"""Stores planning loops as a collection, the controller's reports on them, and the plans that it sets."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from api.schemas.leases import CONTROLLER_LEASE, LEASE_HEADER, LeaseTerm
from api.schemas.planning_loops import (
    LoopPlan,
    LoopPlanRequest,
    LoopState,
    PlanningLoop,
    PlanningLoopSpec,
    PlanningLoopStatus,
)
from api.schemas.plans import PLANS
from api.schemas.problems import FieldProblem
from api.schemas.targets import Mode
from api.server.collections import AuditVerbs, Collection, Entry
from api.server.fencing import refuse_stale
from api.server.problems import ProblemError, conflict, invalid, unprocessable
from api.server.projects import WHOLE_FLEET, ProjectAccess, refuse_over_quota
from api.server.service import Service
from api.server.targets import TARGETS, is_frozen, refuse_absurd_time
from api.store import DocumentRecord, LoopStatusRecord, Transaction, canonical_json
from fleet.documents import read_stored


async def _validate(service: Service, name: str, spec: PlanningLoopSpec, project: ProjectAccess) -> None:
    """Check that the targets exist in the project of the loop, and that they fit."""
    async with service.store.reading() as tx:
        stored = await tx.documents.head(kind=PLANNING_LOOPS.kind, name=name)
        owner = stored.project if stored is not None and stored.body is not None else project.of_new
        if not project.includes(owner):
            return  # the write is refused
        problems = [
            FieldProblem(path=f"targets.{workload}", message=message)
            for workload, target in spec.targets.items()
            if (message := await _misfit(tx, workload, target, owner)) is not None
        ]
    if problems:
        raise unprocessable(problems)


async def _misfit(tx: Transaction, workload: str, name: str, project: str) -> str | None:
    """Return why a target cannot serve a workload of a loop; None where it can."""
    found = await TARGETS.find(tx, name)
    if found is None or found.project != project:
        return f"there is no target {name!r} in project {project!r}"
    if found.spec.workload != workload:
        return f"target {name!r} serves the workload {found.spec.workload!r}"
    if found.spec.demand is None:
        return f"target {name!r} has no `demand`"
    return None


async def _check_references(_service: Service, tx: Transaction, name: str, spec: PlanningLoopSpec | None) -> None:
    """Check that one loop at most sets the plan of a target, and remove the report on a deleted loop."""
    await tx.audit.lock()
    if spec is None:
        await tx.loop_statuses.remove(name)
    elif spec.mode is Mode.APPLY:
        async for other in PLANNING_LOOPS.all(tx):
            if other.name == name or other.spec.mode is not Mode.APPLY:
                continue
            if shared := sorted(set(spec.targets.values()) & set(other.spec.targets.values())):
                raise conflict(f"planning loop {other.name!r} in mode apply sets the plan of target {shared[0]!r}")


PLANNING_LOOPS = Collection(
    kind="planning-loops",
    path="planning-loops",
    label="planning loop",
    verbs=AuditVerbs("planning_loop"),
    spec=PlanningLoopSpec,
    shown=PlanningLoop,
    show=lambda found: PlanningLoop(name=found.name, version=found.version, spec=found.spec, project=found.project),
    parse=partial(read_stored, PlanningLoopSpec),
    validate=_validate,
    check_references=_check_references,
    owned=True,
)


async def read_report(tx: Transaction, name: str) -> PlanningLoopStatus | None:
    """Return the last report on a loop, with the stored state."""
    found = await tx.loop_statuses.get(name)
    if found is None:
        return None
    state = await tx.loop_statuses.state(name)
    report = read_stored(PlanningLoopStatus, found.body)
    return report.model_copy(update={"state": read_stored(LoopState, state) if state is not None else None})


async def keep_report(
    service: Service,
    name: str,
    report: PlanningLoopStatus,
    *,
    actor: str,
    project: ProjectAccess = WHOLE_FLEET,
    held: LeaseTerm | None = None,
) -> None:
    """Store a report.  Where it has no state, the stored state stays."""
    refuse_absurd_time(report.observed_at, now=service.now())
    async with service.store.transaction() as tx:
        await tx.audit.lock()  # otherwise the loop could be deleted between the read and the write
        owner = (await PLANNING_LOOPS.stored(tx, name, project=project)).project
        await refuse_stale(tx, lease=CONTROLLER_LEASE, held=held, actor=actor)
        before = await tx.loop_statuses.get(name)
        # Without default values: a service of another release can then read it, unless it has new fields.
        state = None if report.state is None else canonical_json(report.state.model_dump(mode="json"))
        body = report.model_dump(mode="json", exclude_defaults=True, exclude={"state"})
        await tx.loop_statuses.put(
            LoopStatusRecord(
                planning_loop=name, reported_at=service.now(), reported_by=actor, body=canonical_json(body)
            ),
            state=state,
        )
        if before is None or _audited_part(read_stored(PlanningLoopStatus, before.body)) != _audited_part(report):
            detail = report.model_dump(mode="json", include={"phase", "plan_id", "wanted", "message", "problems"})
            await service.audit(
                tx,
                actor=actor,
                action="planning_loop.reported",
                subject=f"planning-loops/{name}",
                detail=detail,
                project=owner,
            )


def _audited_part(report: PlanningLoopStatus) -> tuple[object, ...]:
    """Return the part of a report whose change is audited."""
    return report.phase, report.plan_id, report.wanted


async def set_plan(
    service: Service,
    name: str,
    request: LoopPlanRequest,
    *,
    actor: str,
    project: ProjectAccess = WHOLE_FLEET,
    held: LeaseTerm | None = None,
) -> LoopPlan:
    """Make a plan that of every target of a loop in mode apply, or of none.  A repetition changes nothing.

    Only the holder of the controller's lease may, and only for the version of the loop that it has planned.
    """
    async with service.store.transaction() as tx:
        await tx.audit.lock()  # until the end nobody else changes the loop, its targets or the freeze
        loop = await PLANNING_LOOPS.get(tx, name, project=project)
        if held is None:
            raise invalid(f"header.{LEASE_HEADER}", f"is required: the term of the lease {CONTROLLER_LEASE!r}")
        await refuse_stale(tx, lease=CONTROLLER_LEASE, held=held, actor=actor)
        _refuse_other_loop(loop, request)
        if await is_frozen(tx):
            raise ProblemError(
                status=HTTPStatus.CONFLICT, kind="frozen", detail="the global freeze is on; nothing was changed"
            )
        own = ProjectAccess(of_new=loop.project, visible=loop.project)
        if not await tx.results.exists(kind=PLANS.name, result_id=request.plan_id, project=loop.project):
            raise invalid("plan_id", f"there is no plan {request.plan_id!r} in project {loop.project!r}")
        targets = [await _target(tx, target, own) for target in sorted(loop.spec.targets.values())]
        before = {target.name: _plan_of(target) for target in targets}
        changed = [target for target in targets if before[target.name] != request.plan_id]
        _refuse_unexpected(before, changed, request)
        after = [await _write(service, tx, target, request.plan_id, actor=actor, loop=loop) for target in changed]
        if changed:
            await service.audit(
                tx,
                actor=actor,
                action="planning_loop.plan_set",
                subject=f"planning-loops/{name}",
                detail={
                    "plan_id": request.plan_id,
                    "loop_version": loop.version,
                    "before": {target.name: before[target.name] for target in changed},
                },
                project=loop.project,
            )
    versions = {target.name: target.version for target in (*targets, *after)}
    return LoopPlan(plan_id=request.plan_id, target_versions=versions)


def _refuse_other_loop(loop: Entry[PlanningLoopSpec], request: LoopPlanRequest) -> None:
    """Refuse a plan for another version of the loop, or for other targets than all of its own."""
    if loop.version != request.loop_version:
        raise conflict(
            f"planning loop {loop.name!r} has version {loop.version} now; planned was version {request.loop_version}"
        )
    if loop.spec.mode is not Mode.APPLY:
        raise conflict(f"planning loop {loop.name!r} is in mode {loop.spec.mode}; only mode apply sets a plan")
    targets = set(loop.spec.targets.values())
    if targets != request.expected_plan_ids.keys():
        raise invalid("expected_plan_ids", f"expected the targets of the loop: {', '.join(sorted(targets))}")


async def _target(tx: Transaction, name: str, project: ProjectAccess) -> DocumentRecord:
    try:
        return await TARGETS.stored(tx, name, project=project)
    except ProblemError as error:
        raise conflict(f"{error.detail}; nothing was changed") from None


def _plan_of(target: DocumentRecord) -> str | None:
    plan_id: str | None = json.loads(target.body or "{}").get("plan_id")
    return plan_id


def _refuse_unexpected(
    before: Mapping[str, str | None], changed: Sequence[DocumentRecord], request: LoopPlanRequest
) -> None:
    for target in changed:
        found, expected = before[target.name], request.expected_plan_ids[target.name]
        if found != expected:
            raise conflict(f"target {target.name!r} has plan {found}, expected {expected}; nothing was changed")


async def _write(
    service: Service,
    tx: Transaction,
    target: DocumentRecord,
    plan_id: str,
    *,
    actor: str,
    loop: Entry[PlanningLoopSpec],
) -> DocumentRecord:
    """Store the next version of a target, requested by the author of the loop, who cannot approve it.

    Fields of a newer release stay as they are.
    """
    spec: dict[str, Any] = json.loads(target.body or "{}") | {"plan_id": plan_id}
    body = canonical_json(spec)
    await refuse_over_quota(tx, target.project, now=service.now(), new_bytes=len(body))
    after = await tx.documents.add_version(
        kind=TARGETS.kind,
        name=target.name,
        after=target.version,
        body=body,
        created_at=service.now(),
        created_by=actor,
        project=target.project,
        requested_by=loop.by,
    )
    await service.audit(
        tx,
        actor=actor,
        action=f"{TARGETS.verbs.of}.{TARGETS.verbs.replaces}",
        subject=f"{TARGETS.path}/{target.name}",
        detail=spec,
        project=target.project,
    )
    return after
