"""Runs planning loops: one decision per loop and window, by the leader only.

A loop's state is stored by the API with its report, so another controller continues at the next window.  Windows end at
whole multiples of their length in Unix time, and a window is decided once: the report names it.  A controller that dies
between the change of the plan and its report leaves targets with the new plan, which its successor takes as the plan in
force.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce

import structlog

from api.client import ApiError, AsyncClient, ConflictError, NotFoundError
from api.client.operations import GPUS, MODELS, create_plan
from api.schemas.demand_sources import DemandSources
from api.schemas.pages import PAGE_LIMIT_MAX
from api.schemas.planning_loops import (
    DriftReport,
    LoopPhase,
    LoopPlanRequest,
    LoopState,
    PlanningLoop,
    PlanningLoopStatus,
    WorkloadDemand,
)
from api.schemas.plans import PlanRecord
from api.schemas.projects import PROJECT_HEADER
from api.schemas.targets import Mode, Target
from api.tracing import span
from deploy.common.clock import Clock
from deploy.common.errors import NotLeadingError, PlanUnusableError
from deploy.common.leader_election import Leadership
from deploy.common.text import one_line
from deploy.controller.plan_reader import PlanReader, planned_replicas
from deploy.demand.reader import DemandReader
from deploy.planning_loop.conversion import (
    demand_report,
    drift_reports,
    memory_of,
    settings_of,
    state_with,
    traffic_by_option,
)
from deploy.planning_loop.history import windows_before
from deploy.planning_loop.metrics import PlanningMetrics
from deploy.planning_loop.stock import PlanningOffers, read_offers
from fleet.errors import FleetwrightError
from planner.demand.replicas import Window
from planner.demand.windows import DemandWindow
from planner.planning_loop import (
    FIRST_DECISION_WINDOWS,
    LoopDecision,
    LoopMemory,
    decide_window,
    forecast_rates,
    observe,
    size_problems,
)
from planner.result import Allocation

log = structlog.get_logger()

READ_DELAY_S = 2.0  # after a window's end, so that its last scrape is stored
STEP_TIMEOUT_S = 60.0  # besides the time limit of the plan
MAX_PROBLEMS = 50


@dataclass(slots=True)
class _Report:
    """What one window leads to."""

    phase: LoopPhase
    state: LoopState
    message: str | None = None
    problems: Sequence[str] = ()
    demand: Mapping[str, WorkloadDemand] = field(default_factory=dict)
    wanted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    drift: Mapping[str, DriftReport] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class PlanningLoops:
    api: AsyncClient
    demand: DemandReader
    leadership: Leadership
    metrics: PlanningMetrics
    clock: Clock
    observe_only: bool = False  # set no plan, whatever the mode of a loop
    _decided: dict[tuple[str, int], float] = field(default_factory=dict)  # (loop, version) -> end of the last window
    _busy: set[str] = field(default_factory=set)
    _polling: bool = False
    _running_before: dict[str, Mapping[str, int]] = field(default_factory=dict)  # target -> part -> replicas

    async def advance(self) -> bool:
        """Decide for every loop whose window has ended; true when every one could be reported on."""
        try:
            loops = [loop async for loop in self.api.iter_planning_loops(limit=PAGE_LIMIT_MAX)]
            await self._poll_pages(loops)
        except (ApiError, TimeoutError) as error:
            log.warning("planning_failed", reason=str(error) or "the API did not list all planning loops in time")
            return False
        known = {(loop.name, loop.version) for loop in loops}
        self._decided = {key: end_s for key, end_s in self._decided.items() if key in known}
        due = [loop for loop in loops if loop.name not in self._busy and self._is_due(loop)]
        self._busy.update(loop.name for loop in due)
        return all(await asyncio.gather(*map(self._decide, due)))

    async def _poll_pages(self, loops: Sequence[PlanningLoop]) -> None:
        """Read the metrics pages of targets whose demand no Prometheus has."""
        if self._polling:
            return  # pages that do not answer must not pile up
        self._polling = True
        try:
            await self.demand.poll(await self._sources(loops), at_s=self.clock.now().timestamp())
        finally:
            self._polling = False

    async def _sources(self, loops: Sequence[PlanningLoop]) -> list[DemandSources]:
        sources = []
        for name in {target for loop in loops for target in loop.spec.targets.values()}:
            try:
                target = (await self.api.get_target(name)).document
            except NotFoundError:
                continue
            if target.spec.demand is not None:
                sources.append(target.spec.demand)
        return sources

    def _is_due(self, loop: PlanningLoop) -> bool:
        return self._decided.get((loop.name, loop.version), float("-inf")) < self._window(loop).end_s

    def _window(self, loop: PlanningLoop) -> Window:
        length_s = loop.spec.window_s
        end_s = (self.clock.now().timestamp() - READ_DELAY_S) // length_s * length_s
        return Window(end_s - length_s, end_s)

    async def _decide(self, loop: PlanningLoop) -> bool:
        window, started_s = self._window(loop), self.clock.steady_s()
        try:
            with span("planning window", fleetwright__planning_loop=loop.name) as traced:
                stored = await self._stored(loop.name)
                if stored.decided_for is None or stored.decided_for.timestamp() < window.end_s:
                    report = await self._step(loop, stored, window)
                    traced.set(fleetwright__phase=report.phase.value)
                    await self._store(loop, window, report)
                    self.metrics.decided(report.phase, duration_s=self.clock.steady_s() - started_s)
            self._decided[loop.name, loop.version] = window.end_s
        except NotLeadingError:
            return False  # the next leader decides
        except NotFoundError:
            log.info("planning_loop_deleted", planning_loop=loop.name)
        except (ApiError, TimeoutError) as error:
            log.warning("planning_failed", planning_loop=loop.name, reason=str(error) or "not done in time")
            return False
        except Exception:
            # A defect in one loop must not stop the others, nor the targets.
            log.exception("planning_error", planning_loop=loop.name)
            return False
        finally:
            self._busy.discard(loop.name)
        return True

    async def _stored(self, name: str) -> LoopState:
        try:
            return (await self.api.get_planning_loop_status(name)).state or LoopState()
        except NotFoundError:
            return LoopState()

    async def _step(self, loop: PlanningLoop, stored: LoopState, window: Window) -> _Report:
        state = stored.model_copy(update={"decided_for": datetime.fromtimestamp(window.end_s, tz=UTC)})
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S + loop.spec.request.time_limit_s):
                targets = {
                    workload: (await self.api.get_target(name)).document for workload, name in loop.spec.targets.items()
                }
                windows = await self._read(targets, window)
                problems = [
                    f"{targets[workload].name}: {problem}"
                    for workload, found in windows.items()
                    for problem in found.problems
                ]
                problems = problems or size_problems(windows, template=loop.spec.request)
                if problems:
                    return await self._hold(loop, targets, state, problems)
                return await self._plan(loop, targets, state, windows)
        except TimeoutError:
            return _Report(LoopPhase.FAILED, state, message="the window was not decided in time")
        except NotLeadingError:
            raise
        except (FleetwrightError, ApiError) as error:
            return _Report(LoopPhase.FAILED, state, message=str(error))

    async def _read(self, targets: Mapping[str, Target], window: Window) -> dict[str, DemandWindow]:
        async def one(target: Target) -> DemandWindow:
            if target.spec.demand is None:
                return DemandWindow(window=window, problems=("missing: the target has no `demand`",))
            now = await self._running(target.name)
            before = self._running_before.get(target.name, now)
            self._running_before[target.name] = now
            # A replica that has just begun to serve may not have been scraped yet.
            running = {part: min(count, before.get(part, 0)) for part, count in now.items()}
            return await self.demand.read(target.spec.demand, window=window, expected_replicas=running)

        return dict(zip(targets, await asyncio.gather(*map(one, targets.values())), strict=True))

    async def _running(self, target: str) -> Mapping[str, int]:
        try:
            return (await self.api.get_target_status(target)).applied
        except NotFoundError:
            return {}

    async def _hold(
        self,
        loop: PlanningLoop,
        targets: Mapping[str, Target],
        state: LoopState,
        problems: Sequence[str],
        *,
        what: str = "demand",
    ) -> _Report:
        """The demand or the stock cannot be trusted: the last decision stays."""
        log.warning("input_unusable", planning_loop=loop.name, input=what, problems=problems[:5])
        in_force = await self._plan_in_force(loop, targets, state)
        return _Report(
            LoopPhase.HOLDING,
            state,
            message=f"the {what} of this window is not usable; the last decision stays",
            problems=problems,
            wanted={} if in_force is None else _wanted(in_force, targets),
        )

    async def _plan(
        self,
        loop: PlanningLoop,
        targets: Mapping[str, Target],
        state: LoopState,
        windows: Mapping[str, DemandWindow],
    ) -> _Report:
        spec, settings = loop.spec, settings_of(loop.spec)
        memory = memory_of(state) if state.forecasts else await self._with_history(loop, targets, windows)
        memory = observe(memory, windows, template=spec.request, settings=settings)
        observed = min(forecast.observed for forecast in memory.forecasts.values())
        in_force = await self._plan_in_force(loop, targets, state)
        wanted = {} if in_force is None else _wanted(in_force, targets)
        if observed < FIRST_DECISION_WINDOWS:
            rates_rps = forecast_rates(memory, template=spec.request, settings=settings)
            demand = {name: demand_report(found, forecast_rps=rates_rps[name]) for name, found in windows.items()}
            message = f"{observed} of {FIRST_DECISION_WINDOWS} windows of demand that the first decision needs"
            return _Report(LoopPhase.WARMING_UP, state_with(state, memory), message, demand=demand, wanted=wanted)
        running = () if in_force is None else in_force.plan.allocation
        offers = await read_offers(self.api, spec.request, now=self.clock.now())
        if offers.problems:
            return await self._hold(loop, targets, state_with(state, memory), offers.problems, what="stock")
        decision = await self._decision(loop, memory, running, windows, offers)
        report = _Report(
            LoopPhase.STEADY,
            state_with(state, decision.memory),
            decision.reason,
            demand={
                name: demand_report(found, forecast_rps=decision.forecast_rps[name]) for name, found in windows.items()
            },
            wanted=wanted,
            drift=drift_reports(decision.drifts),
        )
        report.state = report.state.model_copy(update={"plan_id": None if in_force is None else in_force.id})
        if not decision.moved:
            report.phase = LoopPhase.STEADY if decision.is_served else LoopPhase.FAILED
            return report
        if spec.mode is Mode.OBSERVE:
            report.phase, report.message = LoopPhase.OBSERVED, f"a new plan is due: {decision.reason}"
            return report
        return await self._adopt(loop, targets, decision, report)

    async def _with_history(
        self, loop: PlanningLoop, targets: Mapping[str, Target], windows: Mapping[str, DemandWindow]
    ) -> LoopMemory:
        """Begin with the windows before the first one."""
        sources = {name: target.spec.demand for name, target in targets.items() if target.spec.demand is not None}
        window = next(iter(windows.values())).window
        history = await windows_before(window, demand=self.demand, sources=sources, clock=self.clock)
        log.info("planning_history_read", planning_loop=loop.name, windows=len(history))
        template, settings = loop.spec.request, settings_of(loop.spec)
        return reduce(
            lambda memory, each: observe(memory, each, template=template, settings=settings), history, LoopMemory()
        )

    async def _decision(
        self,
        loop: PlanningLoop,
        memory: LoopMemory,
        running: Sequence[Allocation],
        windows: Mapping[str, DemandWindow],
        offers: PlanningOffers,
    ) -> LoopDecision:
        gpus, models = await asyncio.gather(self.api.get_document(GPUS), self.api.get_document(MODELS))
        decision = await asyncio.to_thread(
            decide_window,
            offers.request,
            memory=memory,
            settings=settings_of(loop.spec),
            running=[entry for entry in running if entry.workload in loop.spec.targets],
            windows=windows,
            traffic=traffic_by_option([entry for entry in running if entry.workload in windows], windows),
            gpus=gpus.document,
            models=models.document,
            offers=offers.of_service,
        )
        # The service fills in the stock of its own, and keeps it with the plan.
        return replace(decision, request=decision.request.model_copy(update={"offers": loop.spec.request.offers}))

    async def _adopt(
        self, loop: PlanningLoop, targets: Mapping[str, Target], decision: LoopDecision, report: _Report
    ) -> _Report:
        """Store the new plan with its inputs, and set it where the mode allows that."""
        sets_plan = loop.spec.mode is Mode.APPLY and not self.observe_only
        if sets_plan and (await self.api.get_freeze()).document.frozen:
            report.phase, report.message = LoopPhase.FROZEN, f"a new plan is due: {decision.reason}"
            return report
        call = create_plan(decision.request)  # in the project of the loop, which may not be that of the token
        record = await self.api.send(replace(call, headers={**call.headers, PROJECT_HEADER: loop.project}))
        if not record.plan.status.has_mix:
            reason = record.plan.explanation[0] if record.plan.explanation else record.plan.status.value
            report.phase, report.message = LoopPhase.FAILED, f"plan {record.id} has no mix: {reason}"
            return report
        wanted = _wanted(record, targets)
        if (use := record.plan.stale_stock) is not None:
            report.phase, report.message = LoopPhase.HOLDING, f"plan {record.id} is not set: {use}"
            return report
        report.message = f"{decision.reason}; plan {record.id}"
        if sets_plan:
            expected = {target.name: target.spec.plan_id for target in targets.values()}
            request = LoopPlanRequest(plan_id=record.id, loop_version=loop.version, expected_plan_ids=expected)
            try:
                async with self.leadership.acting():
                    if (held := self.leadership.held) is None:
                        raise NotLeadingError("the lease has ended")
                    await self.api.set_planning_loop_plan(loop.name, request, held=held)
            except ConflictError as error:
                frozen = (await self.api.get_freeze()).document.frozen
                report.phase = LoopPhase.FROZEN if frozen else LoopPhase.HOLDING
                report.message = f"plan {record.id} was not set: {error}"
                return report
            report.phase = LoopPhase.APPLIED
        else:
            report.phase = LoopPhase.RECOMMENDED
        log.info(
            "plan_decided", planning_loop=loop.name, plan_id=record.id, phase=report.phase.value, reason=decision.reason
        )
        report.wanted = wanted
        report.state = report.state.model_copy(update={"plan_id": record.id})
        return report

    async def _plan_in_force(
        self, loop: PlanningLoop, targets: Mapping[str, Target], state: LoopState
    ) -> PlanRecord | None:
        """The plan of the targets; where the loop only recommends, its last recommendation."""
        set_ids = {target.spec.plan_id for target in targets.values()}
        of_targets = set_ids.pop() if len(set_ids) == 1 else None
        recommends = loop.spec.mode is Mode.RECOMMEND or (self.observe_only and loop.spec.mode is Mode.APPLY)
        plan_id = (state.plan_id or of_targets) if recommends else of_targets
        if plan_id is None:
            return None
        try:
            return await PlanReader(self.api).get(plan_id)
        except PlanUnusableError:  # removed with old results
            return None

    async def _store(self, loop: PlanningLoop, window: Window, report: _Report) -> None:
        status = PlanningLoopStatus(
            phase=report.phase,
            observed_at=self.clock.now(),
            window_end=datetime.fromtimestamp(window.end_s, tz=UTC),
            message=None if report.message is None else one_line(report.message),
            problems=tuple(one_line(problem) for problem in report.problems[:MAX_PROBLEMS]),
            demand=dict(report.demand),
            wanted={name: dict(counts) for name, counts in report.wanted.items()},
            plan_id=report.state.plan_id,
            drift=dict(report.drift),
            state=report.state,
        )
        async with self.leadership.acting():
            await self.api.report_planning_loop_status(loop.name, status, held=self.leadership.held)


def _wanted(record: PlanRecord, targets: Mapping[str, Target]) -> dict[str, dict[str, int]]:
    """Target -> part -> replicas.  PlanUnusableError where a target has no part for an option of the plan."""
    return {target.name: planned_replicas(record, target.spec) for target in targets.values()}
