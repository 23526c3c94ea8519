"""Lists the kinds of jobs: what each reads from the store, what its process does, and how its result is stored.

A kind is three functions.  `gather` runs in the worker and reads the store; `run` runs in the job's own process and
reads nothing else; `store` runs in the transaction that ends the job.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from api.jobs.audit_check import AUDIT_CHECK, run_audit_check
from api.jobs.body import read_body
from api.jobs.bundles import checked, replayed
from api.jobs.computations import COMPUTATIONS, Computation
from api.jobs.diagnoses import audit_detail, head_of, read_report, refuse_invalid
from api.jobs.outcome import Expanded, Report, Solved, Task
from api.jobs.results import KINDS, PLACEMENT_KIND, SWEEP_KIND, ResultKind
from api.jobs.stored_plans import (
    PLAN_COMPARISON,
    PLAN_EXPLANATION,
    PLAN_REPLAY,
    compare,
    explain,
    gather_both,
    gather_planned,
    replay,
)
from api.jobs.sweeps import CHILDREN, SWEEP_POINT, expand, point_inputs, solve_point, sweep_inputs
from api.schemas.faults import DiagnosisReport
from api.schemas.jobs import Lane
from api.schemas.labels import ResultNaming
from api.store import JobRecord, ResultSummary, StoredResult, Transaction, canonical_json
from fleet.documents import read_stored
from fleet.errors import UnknownNameError
from placement.document import Placement
from placement.formats.engine_writers import Engine, export_placement

DIAGNOSIS: Final = "diagnosis"
BUNDLE_REPLAY: Final = "bundle replay"
PLACEMENT_EXPORT: Final = "placement export"
DIAGNOSES_PATH: Final = "faults/diagnoses"

Gather = Callable[[Transaction, JobRecord, str], Awaitable[Mapping[str, Any]]]
Keep = Callable[[Transaction, JobRecord, Solved, datetime], Awaitable[None]]


async def _nothing(_tx: Transaction, _job: JobRecord, _request: str) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    name: str
    lane: Lane
    run: Callable[[Task, Report], Solved | Expanded]
    gather: Gather = _nothing
    store: Keep | None = None  # None: the job itself keeps its output
    path: str | None = None  # below `/v1/`, of what `store` makes
    cacheable: bool = False
    reads_database: bool = False  # `run` opens a connection of its own


async def _gather_result(
    kind: ResultKind[Any, Any], tx: Transaction, _job: JobRecord, request: str
) -> Mapping[str, Any]:
    return await kind.gather(tx, request)


async def _store_result(
    kind: ResultKind[Any, Any], tx: Transaction, job: JobRecord, solved: Solved, now: datetime
) -> None:
    naming = ResultNaming.model_validate_json(job.naming) if job.naming is not None else ResultNaming()
    head = ResultSummary(
        id=job.id,
        kind=kind.type.name,
        created_at=job.created_at,
        created_by=job.created_by,
        summary=canonical_json(solved.columns),
        project=job.project,
        name=naming.name,
        labels=naming.labels,
        content_sha256=solved.content_sha256,
        inputs=solved.inputs,
    )
    await tx.results.add(StoredResult(head=head, request=solved.request or "", result=solved.output))
    columns = solved.columns
    await _audit(
        tx,
        job,
        now,
        action=f"{kind.operation.replace('_', '-')}.created",
        subject=f"{kind.type.path}/{job.id}",
        detail=columns if kind.audited is None else {name: columns[name] for name in kind.audited},
    )


def _check_bundle(task: Task, report: Report) -> Solved:
    report("checking the bundle", None)
    diagnosis = read_body(DiagnosisReport, task.request)
    refuse_invalid(diagnosis)
    bundle = checked(diagnosis.bundle) if diagnosis.bundle is not None else None
    return Solved(
        output=diagnosis.model_dump_json(exclude={"bundle"}),
        columns={"sha256": bundle.sha256 if bundle is not None else None},
        blob=bundle.packed if bundle is not None else None,
    )


async def _store_diagnosis(tx: Transaction, job: JobRecord, solved: Solved, now: datetime) -> None:
    report = read_stored(DiagnosisReport, solved.output)
    head = head_of(
        report,
        diagnosis_id=job.id,
        now=now,
        actor=job.created_by,
        bundle_sha256=solved.columns["sha256"],
        project=job.project,
    )
    await tx.diagnoses.add(head, bundle=solved.blob)
    await _audit(
        tx,
        job,
        now,
        action="diagnosis.reported",
        subject=f"{DIAGNOSES_PATH}/{job.id}",
        detail=audit_detail(head, report.diagnosis),
    )


async def _replay_inputs(tx: Transaction, job: JobRecord, _request: str) -> Mapping[str, Any]:
    diagnosis_id = job.subject_id
    head, packed = await tx.diagnoses.get(diagnosis_id), await tx.diagnoses.bundle(diagnosis_id)
    if head is None or packed is None:
        raise UnknownNameError(kind="diagnosis", name=diagnosis_id, known=())
    return {"id": diagnosis_id, "report": head, "packed": packed}


def _replay_bundle(task: Task, report: Report) -> Solved:
    report("replaying the bundle", None)
    inputs = task.inputs
    found = replayed(
        inputs["packed"],
        diagnosis_id=inputs["id"],
        diagnosis=read_report(inputs["report"]).diagnosis,
        clock_s=time.monotonic,
    )
    return Solved(output=found.model_dump_json(), observed={"same": found.same})


def _run_sweep(task: Task, report: Report) -> Solved | Expanded:
    """Create the points in the first run, and join them in the second."""
    return SWEEP_KIND.run(task, report) if CHILDREN in task.inputs else expand(task, report)


async def _gather_computation(
    computation: Computation[Any], tx: Transaction, _job: JobRecord, _request: str
) -> Mapping[str, Any]:
    return await computation.gather(tx)


async def _placement_text(tx: Transaction, job: JobRecord, _request: str) -> Mapping[str, Any]:
    placement_id = job.subject_id
    stored = await tx.results.get(kind=PLACEMENT_KIND.type.name, result_id=placement_id)
    if stored is None:
        raise UnknownNameError(kind="placement", name=placement_id, known=())
    return {"placement": stored.result}


def _export_placement(task: Task, report: Report) -> Solved:
    report("exporting", None)
    engine = Engine(json.loads(task.request))
    return Solved(output=export_placement(read_stored(Placement, task.inputs["placement"]), engine))


JOB_KINDS: Final[Mapping[str, JobKind]] = {
    kind.name: kind
    for kind in (
        *(
            JobKind(
                name=result.type.name,
                lane=Lane.WORK,
                run=result.run,
                gather=partial(_gather_result, result),
                store=partial(_store_result, result),
                path=result.type.path,
                cacheable=result.cacheable,
            )
            for result in KINDS
            if result is not SWEEP_KIND
        ),
        JobKind(
            name=SWEEP_KIND.type.name,
            lane=Lane.WORK,
            run=_run_sweep,
            gather=sweep_inputs,
            store=partial(_store_result, SWEEP_KIND),
            path=SWEEP_KIND.type.path,
            cacheable=True,
        ),
        JobKind(name=SWEEP_POINT, lane=Lane.WORK, run=solve_point, gather=point_inputs),
        JobKind(name=DIAGNOSIS, lane=Lane.SAFETY, run=_check_bundle, store=_store_diagnosis, path=DIAGNOSES_PATH),
        JobKind(name=BUNDLE_REPLAY, lane=Lane.READS, run=_replay_bundle, gather=_replay_inputs),
        JobKind(name=PLACEMENT_EXPORT, lane=Lane.READS, run=_export_placement, gather=_placement_text),
        JobKind(name=AUDIT_CHECK, lane=Lane.READS, run=run_audit_check, reads_database=True),
        JobKind(name=PLAN_COMPARISON, lane=Lane.READS, run=compare, gather=gather_both),
        JobKind(name=PLAN_EXPLANATION, lane=Lane.WORK, run=explain, gather=gather_planned),
        JobKind(name=PLAN_REPLAY, lane=Lane.WORK, run=replay, gather=gather_planned),
        *(
            JobKind(name=each.name, lane=Lane.WORK, run=each.run, gather=partial(_gather_computation, each))
            for each in COMPUTATIONS
        ),
    )
}


def kind_named(name: str) -> JobKind:
    """Return a kind; UnknownNameError for one of a newer release."""
    try:
        return JOB_KINDS[name]
    except KeyError:
        raise UnknownNameError(kind="job kind", name=name, known=JOB_KINDS) from None


async def _audit(
    tx: Transaction, job: JobRecord, now: datetime, *, action: str, subject: str, detail: Mapping[str, Any]
) -> None:
    """Append the caller's entry.  Last in a transaction: all writers share its lock."""
    await tx.audit.append(
        at=now,
        actor=job.created_by,
        action=action,
        subject=subject,
        detail=detail,
        request_id=job.request_id,
        project=job.project,
    )
