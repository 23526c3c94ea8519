"""The remediation controller: a level-triggered loop over the cluster, the quarantine policy and all open cases.

    cluster snapshot ──> evaluation (policy, in the API) ──> desired node states ──> cases ──> actions ──> cases stored

A case is stored before its first action, and the next reconcile observes the effect of each action, so the controller
can die at any point.  Of several controllers only the holder of the lease acts.  The controller reads the freeze before
every action and does nothing while the fleet is frozen.

Cases are independent.  A case takes all steps that need no waiting in one reconcile, and the next one starts at once
after progress of a case.  A case that fails is retried in the next reconcile.  Reconciles skip a case while a long
action of it (a hook, a probe) still runs.
"""

import asyncio
import hashlib
from collections.abc import Coroutine, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Generic

import structlog

from api.client import ApiError, AsyncClient, PreconditionFailedError
from api.client.calls import Versioned
from api.schemas.leases import REMEDIATION_LEASE
from api.schemas.pages import PAGE_LIMIT_MAX
from api.schemas.quarantine import EvaluationResult, NodeView, ProbeReport, QuarantineView
from api.schemas.remediation import CaseAction, CaseSpec, RemediationCase, RemediationStage
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError, NotLeadingError
from deploy.common.leader_election import Leadership
from deploy.common.leader_loop import LeaderLoop, Liveness, attempt, finished
from deploy.remediation.action_runner import FAILED, ActionRunner, with_actions
from deploy.remediation.actuator import Actuator, Advance, CaseContext, Probe, Snapshot
from deploy.remediation.metrics import RemediationMetrics
from faults.quarantine import NodeState
from faults.quarantine.inputs import SLOW

log = structlog.get_logger()

LEASE: Final = REMEDIATION_LEASE
OPENED_AT_ONCE: Final = 8  # cases
MAX_STEPS: Final = 4  # of one case in one reconcile


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationSettings:
    act: bool = False  # without it, the controller stores what it would do
    period_s: float = 1.0
    checkpoint_s: float = 60.0  # for ranks that still step, before their workers are ended
    reconcile_timeout_s: float = 60.0
    action_wait_s: float = 2.0  # a reconcile waits so long for the actions of its cases; longer ones continue
    case_timeout_s: float = 600.0  # for all actions of one case in one reconcile


class RemediationController(Generic[Snapshot]):
    def __init__(
        self,
        *,
        api: AsyncClient,
        actuator: Actuator[Snapshot],
        leadership: Leadership,
        metrics: RemediationMetrics,
        settings: RemediationSettings | None = None,
        liveness: Liveness | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._api, self._actuator, self._leadership = api, actuator, leadership
        self._settings = settings or RemediationSettings()
        self._clock = clock or Clock()
        metrics.set_leader_source(lambda: leadership.holds)
        self._runner = ActionRunner(
            api=api, actuator=actuator, leadership=leadership, metrics=metrics, now=self._clock.now
        )
        self._probed: dict[str, ProbeReport] = {}
        self._probes = asyncio.Semaphore(actuator.probes_at_once)
        self._opens = asyncio.Semaphore(OPENED_AT_ONCE)
        self._written: dict[str, Versioned[RemediationCase]] = {}  # open cases as this process last wrote them
        self._running: dict[str, asyncio.Task[bool]] = {}  # by case
        self._next: dict[str, CaseSpec] = {}  # of running cases, as they will be stored
        self._unstored: dict[str, tuple[CaseAction, ...]] = {}  # by open case: actions that could not be stored yet
        self.ending: frozenset[tuple[str, int]] = frozenset()  # attempts whose workers a case ends or has ended

        self._loop = LeaderLoop(
            leadership=leadership,
            reconcile=self._started,
            metrics=metrics,
            clock=self._clock,
            liveness=liveness or Liveness(),
            period_s=self._settings.period_s,
            timeout_s=self._settings.reconcile_timeout_s,
        )

    async def run(self) -> None:
        try:
            await self._loop.run()
        finally:
            for task in (running := list(self._running.values())):
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def reconcile(self) -> bool:
        return await self._loop.once()

    async def _started(self) -> Coroutine[Any, Any, bool]:
        """Reconcile before the next reconcile starts; only the actions of the cases overlap with it."""
        return finished(ok=await attempt(self._reconcile, timeout_s=self._settings.reconcile_timeout_s))

    async def _reconcile(self) -> bool:
        busy = frozenset(self._running)  # read first: the snapshot can be outdated when these cases finish
        snapshot = await self._actuator.observe()
        before = await self._api.get_quarantine()
        cases = {
            each.id: each async for each in self._api.iter_remediation_cases(limit=PAGE_LIMIT_MAX) if each.case.open
        }
        self._keep_only(cases)
        out = frozenset(before.out_of_service)
        evaluation = self._actuator.evaluation(snapshot, out=out, probed=self._probed)
        if evaluation is None:
            return True
        result = await self._api.evaluate_quarantine(evaluation, held=self._leadership.held)
        for decision in result.decisions:
            log.info(
                "decided",
                kind=decision.kind.value,
                node=decision.node,
                reason=decision.reason,
                dry_run=decision.dry_run,
            )
        if result.frozen:
            return True
        after = await self._api.get_quarantine() if result.decisions else before
        opened = await self._open_missing(cases, after, snapshot)
        treated = frozenset(each.case.node for each in cases.values())
        started = [each.case for each in cases.values() if each.case.stage is not RemediationStage.REQUESTED]
        self.ending = frozenset(
            (run.run, run.attempt) for case in (*started, *self._next.values()) for run in case.runs
        )
        tasks = []
        for each in cases.values():
            if each.id not in busy:
                context = CaseContext(
                    case_id=each.id,
                    desired=_desired(each.case.node, result, after),
                    snapshot=snapshot,
                    now=self._clock.now(),
                    releasing=treated - frozenset(result.out_of_service),
                )
                tasks.append(asyncio.create_task(self._try_case(each, context)))
                self._running[each.id] = tasks[-1]
        done, _late = await asyncio.wait(tasks, timeout=self._settings.action_wait_s) if tasks else (set(), set())
        return opened and all(task.result() for task in done)

    def _keep_only(self, cases: Mapping[str, RemediationCase]) -> None:
        nodes = {each.case.node for each in cases.values()}
        self._probed = {node: probe for node, probe in self._probed.items() if node in nodes}
        self._unstored = {case_id: actions for case_id, actions in self._unstored.items() if case_id in cases}
        self._written = {case_id: each for case_id, each in self._written.items() if case_id in cases}

    async def _open_missing(self, cases: dict[str, RemediationCase], view: QuarantineView, snapshot: Snapshot) -> bool:
        treated = {each.case.node for each in cases.values()}
        views = {each.node: each for each in view.nodes}
        missing = [views[node] for node in view.out_of_service if node not in treated and node in views]
        opened = await asyncio.gather(*(self._try_open(each, snapshot) for each in missing))
        cases |= {each.id: each for each in opened if each is not None}
        return None not in opened

    async def _try_open(self, node: NodeView, snapshot: Snapshot) -> RemediationCase | None:
        async with self._opens:
            try:
                return await self._open(*await self._new_case(node, snapshot))
            except ApiError as error:
                log.warning("case_not_opened", node=node.node, reason=str(error))
                return None

    async def _open(self, case_id: str, case: CaseSpec) -> RemediationCase:
        try:
            opened = await self._api.open_remediation_case(case_id, case, held=self._leadership.held)
        except PreconditionFailedError:  # the case was closed, and the same diagnosis quarantined the node again
            return await self._write(await self._api.get_remediation_case(case_id), case)
        self._written[case_id] = opened
        return opened.document

    async def _try_case(self, stored: RemediationCase, context: CaseContext[Snapshot]) -> bool:
        try:
            async with asyncio.timeout(self._settings.case_timeout_s):
                await self._advance(stored, context)
        except (ApiError, ActuationError, TimeoutError) as error:
            log.warning("case_failed", id=stored.id, node=stored.case.node, reason=str(error) or type(error).__name__)
            return False
        except Exception:  # a defect in one case must not end the work on the others
            log.exception("case_error", id=stored.id, node=stored.case.node)
            return False
        finally:
            self._running.pop(stored.id, None)
            self._next.pop(stored.id, None)
        return True

    async def _new_case(self, node: NodeView, snapshot: Snapshot) -> tuple[str, CaseSpec]:
        now = self._clock.now()
        can_checkpoint = False
        if node.diagnosis_id is not None:
            can_checkpoint = (await self._api.get_diagnosis(node.diagnosis_id)).diagnosis.fault in SLOW
        case = CaseSpec(
            node=node.node,
            diagnosis_id=node.diagnosis_id,
            can_checkpoint=can_checkpoint,
            state=node.state,
            stage=RemediationStage.REQUESTED,
            since=now,
            opened_at=now,
            deadline=now + timedelta(seconds=self._settings.checkpoint_s) if can_checkpoint else now,
        )
        digest = hashlib.sha256(node.node.encode()).hexdigest()[:16]
        return node.diagnosis_id or f"cordoned-{digest}", self._actuator.opened(case, snapshot)

    async def _advance(self, stored: RemediationCase, context: CaseContext[Snapshot]) -> None:
        """Take steps until one has to wait for the cluster or for the policy.  Each is stored before the next one."""
        for _step in range(MAX_STEPS):
            before = with_actions(stored.case, self._unstored.get(stored.id, ()))
            after = self._actuator.advance(before, context)
            if not self._settings.act:
                await self._store(stored, _only_requested(before, after, context.now))
                return
            stored, case, failed = await self._run(stored, after, context)
            stored = await self._store(stored, case)
            if failed or not stored.case.open:
                return
            snapshot = await self._actuator.observe_after(after.actions, case=stored.case, context=context)
            if snapshot is None:
                return
            context = replace(context, snapshot=snapshot, now=self._clock.now())

    async def _run(
        self, stored: RemediationCase, after: Advance, context: CaseContext[Snapshot]
    ) -> tuple[RemediationCase, CaseSpec, bool]:
        """Run the actions; each is stored before the next one.

        Returns the stored case, the case to store, and whether an action failed.
        """
        self.ending |= frozenset((run.run, run.attempt) for run in after.case.runs)
        self._next[stored.id] = case = after.case
        # A case closes only after all its actions succeeded, because a closed case is not retried.
        before = stored.case
        still_open = {} if case.open else {"state": before.state, "stage": before.stage, "since": before.since}
        failed = False
        for action in after.actions:
            async with self._probes if isinstance(action, Probe) else nullcontext():
                done = await self._runner.run(action, case=case, context=context)
            failed = failed or done.failed
            if done.reading is not None:
                self._probed[case.node] = ProbeReport(ended_at=self._clock.now(), passed=done.reading.passed)
            if done.case != case:
                case, self._unstored[stored.id] = done.case, done.case.actions
                stored = await self._store(stored, case.model_copy(update=still_open))
        return stored, case.model_copy(update=still_open) if failed else case, failed

    async def _store(self, stored: RemediationCase, case: CaseSpec) -> RemediationCase:
        if case != stored.case:
            before, stored = stored.case, await self._write(await self._current(stored), case)
            if _progress(before) != _progress(stored.case):
                self._loop.again.set()
        self._unstored.pop(stored.id, None)
        return stored

    async def _current(self, stored: RemediationCase) -> Versioned[RemediationCase]:
        written = self._written.get(stored.id)
        if written is not None and written.document.version == stored.version:
            return written  # a write of another controller since then fails by its ETag
        found = await self._api.get_remediation_case(stored.id)
        if found.document.version != stored.version:
            raise NotLeadingError(f"another controller has updated case {stored.id}")
        return found

    async def _write(self, known: Versioned[RemediationCase], case: CaseSpec) -> RemediationCase:
        held = self._leadership.held
        written = await self._api.update_remediation_case(known.document.id, case, if_match=known.etag, held=held)
        self._written[known.document.id] = written
        state, stage = case.state.value, case.stage.value
        log.info("case", id=known.document.id, node=case.node, state=state, stage=stage, message=case.message)
        return written.document


def _desired(node: str, result: EvaluationResult, view: QuarantineView) -> NodeState:
    if node not in result.out_of_service:
        return NodeState.PROBATION
    if any(each.node == node and each.state is NodeState.CORDONED for each in view.nodes):
        return NodeState.CORDONED
    return NodeState.PROBING if node in result.probe else NodeState.QUARANTINED


def _progress(case: CaseSpec) -> object:
    """Return what lets the next reconcile do more when it changes; a failed action is retried after the period."""
    return case.progress, [each for each in case.actions if each.action != FAILED]


def _only_requested(case: CaseSpec, after: Advance, now: datetime) -> CaseSpec:
    """Return the case without --act: its message lists the actions."""
    if not after.case.open:
        return after.case
    actions = "; ".join(map(_as_text, after.actions)) or after.case.message
    state, stage = after.case.state, RemediationStage.REQUESTED
    since = case.since if (state, stage) == case.progress else now
    message = f"would: {actions}"[:1000]
    return after.case.model_copy(update={"stage": stage, "since": since, "message": message})


def _as_text(action: object) -> str:
    values = (getattr(action, name) for name in getattr(action, "__slots__", ()))
    return f"{type(action).__name__.lower()} {', '.join(map(str, values))}"
