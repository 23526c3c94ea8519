"""Does jobs on stored plans: compare two, explain one again, and replay requests over one."""

import json
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from api.jobs.body import read_body
from api.jobs.catalogues import SHIPPED, SINGLE, CatalogueText, catalogue_texts, gpus_of, models_of, offers_of
from api.jobs.outcome import Report, Solved, Task, refuse
from api.jobs.results import PLAN_KIND, refuse_long_replay
from api.schemas.documents import DocumentKind
from api.schemas.plans import (
    CatalogueVersion,
    ComparisonRequest,
    ExplanationRequest,
    PlanExplanation,
    PlanReplayRequest,
    StoredPlanReplay,
)
from api.store import JobRecord, StoredResult, Transaction
from fleet.documents import read_stored
from fleet.errors import UnknownNameError
from planner import plan
from planner.comparison import compare_plans
from planner.explain.explanation import Explanation
from planner.policy import Replay
from planner.request import PlanRequest
from planner.result import Plan
from planner.stock import as_planned
from planner.stored_plan import replay_plan

PLAN_COMPARISON: Final = "plan comparison"
PLAN_EXPLANATION: Final = "plan explanation"
PLAN_REPLAY: Final = "plan replay"
CATALOGUES: Final = (DocumentKind.GPUS, DocumentKind.MODELS, DocumentKind.OFFERS)
VERSIONS: Final = "versions"


async def gather_both(tx: Transaction, job: JobRecord, request: str) -> Mapping[str, Any]:
    """Read both plans of a comparison."""
    other = read_body(ComparisonRequest, request).other
    before, after = await _stored(tx, job.subject_id), await _stored(tx, other)
    return {"before": (before.result, before.request), "after": (after.result, after.request)}


def compare(task: Task, report: Report) -> Solved:
    """Compare two plans."""
    report("comparing", None)
    (before, request_before), (after, request_after) = task.inputs["before"], task.inputs["after"]
    found = compare_plans(
        read_stored(Plan, before),
        read_stored(Plan, after),
        request_before=read_stored(PlanRequest, request_before),
        request_after=read_stored(PlanRequest, request_after),
    )
    return Solved(output=found.model_dump_json())


async def gather_planned(tx: Transaction, job: JobRecord, _request: str) -> Mapping[str, Any]:
    """Read a plan, its request, and the catalogues that it was solved with, as far as they are still stored."""
    stored = await _stored(tx, job.subject_id)
    recorded = json.loads(stored.head.inputs) if stored.head.inputs is not None else {}
    texts, versions = await catalogue_texts(tx, *CATALOGUES), []
    is_same_release = recorded.get("release") == version("fleetwright")
    for kind in CATALOGUES:
        current, planned = texts[kind], recorded.get("versions", {}).get(kind.value)
        texts[kind] = used = await _text_at(tx, kind, planned, current=current)
        versions.append(
            CatalogueVersion(
                catalogue=kind,
                planned=planned,
                used=used.version,
                in_force=current.version,
                is_as_planned=used.version == planned and (planned != SHIPPED or is_same_release),
            )
        )
    return {**texts, "id": stored.head.id, "plan": stored.result, "request": stored.request, VERSIONS: versions}


def explain(task: Task, report: Report) -> Solved:
    """Solve the request of a plan again, with an explanation."""
    options = read_body(ExplanationRequest, task.request)
    request, planned = read_stored(PlanRequest, task.inputs["request"]), read_stored(Plan, task.inputs["plan"])
    versions = _versions(task, request)
    prices = offers_of(task.inputs)
    prices = prices.model_copy(update={"offers": as_planned(prices.offers, planned.stock)})
    changes: dict[str, Any] = {"horizon": None}  # the explanation is of the single mix
    if request.offers is not None:
        changes["offers"] = as_planned(request.offers, planned.stock)
    if options.time_limit_s is not None:
        changes["time_limit_s"] = options.time_limit_s
    again = plan(
        request.model_copy(update=changes).explained(options.level),
        gpus=gpus_of(task.inputs),
        models=models_of(task.inputs),
        prices=prices,
        now=task.now,
        clock_s=time.monotonic,
        report=report,
    )
    parts = {name: getattr(again, name) for name in Explanation.model_fields if name != "lines"}
    found = PlanExplanation(
        plan_id=task.inputs["id"],
        level=options.level,
        same_mix=_mix(again) == _mix(planned),
        status=again.status,
        cost_usd_per_h=again.cost_usd_per_h,
        cut=again.cut,
        inputs=versions,
        inputs_changed=tuple(each.catalogue for each in versions if not each.is_as_planned),
        explanation=Explanation(lines=again.explanation, **parts),
    )
    return Solved(output=found.model_dump_json())


def replay(task: Task, report: Report) -> Solved:
    """Replay simulated requests over a plan."""
    options = read_body(PlanReplayRequest, task.request)
    request, planned = read_stored(PlanRequest, task.inputs["request"]), read_stored(Plan, task.inputs["plan"])
    traffic = Replay(hours=options.hours, seed=options.seed, size=False)
    refuse_long_replay(request.model_copy(update={"replay": traffic}), task, field="hours")
    if not planned.status.has_mix:
        raise refuse("id", f"is a plan without a mix ({planned.status.value}): there is nothing to replay")
    versions = _versions(task, request)
    found = replay_plan(
        request,
        planned,
        hours=options.hours,
        seed=options.seed,
        time_limit_s=options.time_limit_s,
        gpus=gpus_of(task.inputs),
        models=models_of(task.inputs),
        prices=offers_of(task.inputs),
        clock_s=time.monotonic,
        report=report,
    )
    answer = StoredPlanReplay(
        plan_id=task.inputs["id"],
        hours=options.hours,
        seed=options.seed,
        inputs=versions,
        inputs_changed=tuple(each.catalogue for each in versions if not each.is_as_planned),
        replay=found,
    )
    return Solved(output=answer.model_dump_json())


async def _stored(tx: Transaction, plan_id: str) -> StoredResult:
    stored = await tx.results.get(kind=PLAN_KIND.type.name, result_id=plan_id)
    if stored is None:
        raise UnknownNameError(kind="plan", name=plan_id, known=())
    return stored


async def _text_at(
    tx: Transaction, kind: DocumentKind, planned: int | None, *, current: CatalogueText
) -> CatalogueText:
    """Return the version that a plan was solved with; the one in force where it is not stored any more."""
    if planned is None or planned == current.version:
        return current
    if planned == SHIPPED:
        return CatalogueText()
    document = await tx.documents.get(kind=kind, name=SINGLE, version=planned)
    return CatalogueText(planned, document.body) if document is not None and document.body is not None else current


def _versions(task: Task, request: PlanRequest) -> tuple[CatalogueVersion, ...]:
    """Return the versions of the catalogues that a request reads: its own offers replace the price sheet."""
    versions: list[CatalogueVersion] = task.inputs[VERSIONS]
    return tuple(each for each in versions if each.catalogue is not DocumentKind.OFFERS or request.offers is None)


def _mix(found: Plan) -> dict[tuple[str, str], int]:
    return {(entry.workload, entry.option): entry.count for entry in found.allocation}
