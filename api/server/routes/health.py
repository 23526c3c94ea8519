"""`/livez`, `/readyz`, `/metrics`: for orchestrators and Prometheus, without a token and without secrets."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response

from api.jobs.diagnoses import read_report
from api.schemas.planning_loops import PlanningLoopSpec, PlanningLoopStatus
from api.schemas.power import POWER_PLANS
from api.schemas.targets import Freeze
from api.server.catalogues import ALL
from api.server.fault_metrics import ActiveFault, FaultState
from api.server.metrics import CONTENT_TYPE, FleetState, ReportedTarget, render_state
from api.server.openapi import Responses, problems
from api.server.planning_loop_metrics import ReportedLoop
from api.server.planning_loops import PLANNING_LOOPS
from api.server.power_metrics import PowerState
from api.server.power_trees import BUDGETS, guarded_rows
from api.server.problems import ProblemError
from api.server.quarantine import MAX_ACTIVE, load_state, rules_in_force
from api.server.remediation import CASES
from api.server.remediation_metrics import mark_of
from api.server.reported_targets import parse_reports
from api.server.service import Service, ServiceOf
from api.server.target_costs import Prices, prices_of
from api.server.targets import FREEZE, TARGETS
from api.server.versioned import current
from api.store import (
    DatabaseUnavailableError,
    DiagnosisHead,
    DocumentRecord,
    LoopStatusRecord,
    StatusRecord,
    Transaction,
)
from faults.quarantine.inputs import NODES
from fleet.documents import Frozen, read_stored
from power.caps import CapPlan

router = APIRouter(tags=["health"])
_UNAVAILABLE: Responses = {503: problems()[503]}


class Health(Frozen):
    """The successful response; a failure is a problem."""

    status: Literal["ok"]


@router.get("/livez", name="Is the process alive", operation_id="livez")
async def livez() -> Health:
    """200 while the event loop runs.  The state of the database does not matter: a restart would not repair it."""
    return Health(status="ok")


@router.get("/readyz", name="Can it take requests", operation_id="readyz", responses=_UNAVAILABLE)
async def readyz(service: ServiceOf) -> Health:
    """200 once the database takes reads and writes, its schema is the required one or newer, and the first token is
    stored.
    """
    async with service.store.reading() as tx:
        revision = await tx.schema_revision()
    if not service.supports_schema(revision):
        raise ProblemError(
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            kind="schema-not-current",
            detail=f"the database schema is at {revision or 'nothing'}, this program needs {service.schema_head}: "
            "run `fleetwright migrate`",
        )
    # The holder of the first token may use it as soon as the service reports ready.
    if not service.first_token_stored.is_set():
        raise ProblemError(
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            kind="first-token-not-stored",
            detail="the service starts: its first token is not stored yet",
        )
    await service.database_health.check_writable()
    return Health(status="ok")


@router.get("/metrics", name="Prometheus metrics", operation_id="metrics", response_class=Response)
async def metrics(service: ServiceOf) -> Response:
    """Counters of this process and the state of the fleet; without the database, only that it is down."""
    page = await service.metrics_page.get(lambda: _render(service))
    return Response(content=page, media_type=CONTENT_TYPE)


async def _render(service: Service) -> bytes:
    state, stored = await _read(service)

    # For thousands of targets, parsing and rendering take a good part of a second.
    targets = await asyncio.to_thread(parse_reports, stored.targets, stored.reports)
    prices = await _prices(service, targets)

    def parse_and_render() -> bytes:
        priced = [replace(each, prices=prices.get(each.target.spec.plan_id or "", ())) for each in targets]
        specs = {each.name: PLANNING_LOOPS.entry(each).spec for each in stored.loops}
        loops = [_reported_loop(each, specs.get(each.planning_loop)) for each in stored.loop_reports]
        return service.metrics.render() + render_state(replace(state, targets=priced, planning_loops=loops))

    pages = [await page() for page in service.metrics.pages]
    return b"".join([await asyncio.to_thread(parse_and_render), *pages])


async def _prices(service: Service, targets: Sequence[ReportedTarget]) -> Mapping[str, Prices]:
    try:
        async with service.store.reading() as tx:
            return await prices_of(tx, [each.target.spec.plan_id for each in targets])
    except DatabaseUnavailableError as error:
        service.database_health.log_failure(error)
        return {}


@dataclass(frozen=True, slots=True)
class _Stored:
    """Holds targets and reports as stored."""

    targets: Sequence[DocumentRecord] = ()
    reports: Sequence[StatusRecord] = ()
    loops: Sequence[DocumentRecord] = ()
    loop_reports: Sequence[LoopStatusRecord] = ()


async def _read(service: Service) -> tuple[FleetState, _Stored]:
    """Read everything that `/metrics` exports, or that the database is down."""
    writable = await service.database_health.is_writable()
    try:
        async with service.store.reading() as tx:
            freeze = read_stored(Freeze, (await current(tx, FREEZE)).body or "")
            state = FleetState(
                at=service.now(),
                database_up=True,
                database_writable=writable,
                frozen=freeze.frozen,
                audit_entries=await tx.audit.length(),
                document_versions=[(item.kind.value, (await current(tx, item.key)).version) for item in ALL],
                power=PowerState(
                    budgets=[(each.name, each.spec) async for each in BUDGETS.all(tx)],
                    plan=await _newest_caps(tx),
                    guarded_rows=await guarded_rows(tx),
                ),
                faults=await _faults(tx, service.now()),
                remediation=[mark_of(case.body or "") async for case in CASES.heads(tx)],
                jobs=await tx.jobs.counts(),
                workers=service.metrics.live_workers(await tx.workers.all(), now_s=service.monotonic_s()),
            )
            targets = [target async for target in TARGETS.heads(tx)]
            loops = [loop async for loop in PLANNING_LOOPS.heads(tx)]
            return state, _Stored(targets, await tx.statuses.all(), loops, await tx.loop_statuses.all())
    except DatabaseUnavailableError as error:
        service.database_health.log_failure(error)
        return FleetState(at=service.now(), database_up=False), _Stored()


def _reported_loop(report: LoopStatusRecord, spec: PlanningLoopSpec | None) -> ReportedLoop:
    status = read_stored(PlanningLoopStatus, report.body)
    return ReportedLoop(name=report.planning_loop, status=status, reported_at=report.reported_at, spec=spec)


async def _newest_caps(tx: Transaction) -> CapPlan | None:
    found = await tx.results.page(kind=POWER_PLANS.name, before_id=None, limit=1)
    stored = await tx.results.get(kind=POWER_PLANS.name, result_id=found[0].id) if found else None
    return read_caps(stored.result) if stored is not None else None


async def _faults(tx: Transaction, now: datetime) -> FaultState:
    stored = await load_state(tx)
    return FaultState(
        active=[_active_fault(head) for head in await tx.diagnoses.active(now=now, limit=MAX_ACTIVE)],
        mode=(await rules_in_force(tx)).mode,
        evaluated_at=stored.record.evaluated_at if stored.record is not None else None,
        fleet=len(stored.members),
        state=stored.state,
    )


def _active_fault(head: DiagnosisHead) -> ActiveFault:
    report = read_report(head)
    diagnosis = report.diagnosis
    node = report.name_of(diagnosis.node) if diagnosis.isolate and diagnosis.scope in NODES else None
    return ActiveFault(fault=diagnosis.fault, scope=diagnosis.scope.value, since=head.created_at, node=node)


@lru_cache(maxsize=2)
def read_caps(body: str) -> CapPlan:
    """Parse a stored plan; cached, because every scrape reads the same one."""
    return read_stored(CapPlan, body)
