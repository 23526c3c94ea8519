"""The power check: a level-triggered loop over Kueue's workloads, the power tree and its budgets.

    limits of the rows ──┐
    workloads ──> queue ─┴─> decisions ──> states of the checks

The state of a workload's check is the only record of an admission: it names the row and the watts.  Each write tests
the version of the workload, and only the holder of the lease writes.  A power check that dies at any point leaves
either no admission or a whole one, which its successor counts.  Only places in the queue are kept in memory.
"""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import structlog

from api.client import AsyncClient
from api.client.operations import GPUS
from api.schemas.leases import POWER_CHECK_LEASE
from api.schemas.pages import PAGE_LIMIT_MAX
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError, OvertakenError, PlanUnusableError
from deploy.common.leader_election import Leadership
from deploy.common.leader_loop import LeaderLoop, Liveness, attempt, finished
from deploy.kueue_power.cluster import KueueCluster
from deploy.kueue_power.config import PowerCheckFile
from deploy.kueue_power.demand import DemandModel
from deploy.kueue_power.metrics import DecisionKind, PowerCheckMetrics
from deploy.kueue_power.queue import Place, PowerQueue, Queued, job_of, queue_of
from deploy.kueue_power.workloads import Workload
from deploy.kueue_power.writes import active_patch, retry, state_of, without_gpus
from fleet.errors import UnknownNameError
from power.job_admission import Admitted, Decision, Domain, Held, Rejected, decide, domains_of

log = structlog.get_logger()

LEASE: Final = POWER_CHECK_LEASE
PLACE_RETRIES: Final = 2  # a job keeps its place for as many retries; then it waits for something else
KINDS: Final[Mapping[type[Decision], DecisionKind]] = {
    Admitted: DecisionKind.ADMITTED,
    Held: DecisionKind.HELD,
    Rejected: DecisionKind.REJECTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCheckSettings:
    act: bool = False  # without it, the check logs and counts its decisions
    period_s: float = 5.0
    reconcile_timeout_s: float = 60.0


@dataclass(slots=True, kw_only=True)
class PowerCheck:
    api: AsyncClient
    cluster: KueueCluster
    file: PowerCheckFile
    leadership: Leadership
    metrics: PowerCheckMetrics
    settings: PowerCheckSettings = field(default_factory=PowerCheckSettings)
    liveness: Liveness = field(default_factory=Liveness)
    clock: Clock = field(default_factory=Clock)
    _places: dict[str, Place] = field(default_factory=dict)
    _logged: dict[str, str] = field(default_factory=dict)  # last message by workload
    _loop: LeaderLoop = field(init=False)

    def __post_init__(self) -> None:
        self.metrics.set_leader_source(lambda: self.leadership.holds)
        self._loop = LeaderLoop(
            leadership=self.leadership,
            reconcile=self._started,
            metrics=self.metrics,
            clock=self.clock,
            liveness=self.liveness,
            period_s=self.settings.period_s,
            timeout_s=self.settings.reconcile_timeout_s,
        )

    async def run(self) -> None:
        await self._loop.run()

    async def reconcile(self) -> bool:
        return await self._loop.once()

    async def _started(self) -> Coroutine[Any, Any, bool]:
        return finished(ok=await attempt(self._reconcile, timeout_s=self.settings.reconcile_timeout_s))

    async def _reconcile(self) -> bool:
        checks = await self.cluster.checks()
        domains = await self._domains()
        gpus = (await self.api.get_document(GPUS)).document
        model = DemandModel(file=self.file, gpus=gpus, flavors=await self.cluster.flavors())
        if (await self.api.get_freeze()).document.frozen:
            return True
        for check in checks:
            patch = active_patch(check, now=self.clock.now())
            if patch is not None and self.settings.act:
                async with self.leadership.acting():
                    await self.cluster.set_active(check, patch)
        # Read last: nothing else admits workloads, so this state holds until the writes below.
        workloads = await self.cluster.workloads()
        self._forget(workloads)
        queue = queue_of(
            workloads,
            checks=[check.metadata.name for check in checks],
            undecided={check.metadata.name for check in checks if check.spec.parameters is not None},
            model=model,
            places=self._places,
            now_s=self.clock.now().timestamp(),
        )
        decisions = decide(
            domains,
            self.file.rows,
            running=queue.running,
            waiting=[job for job in queue.waiting if not job.ready or queue.queued[job.name].demand.pod_sets],
            reserved_w=self.file.reserved_w,
        )
        self._measure(domains, queue, decisions)
        return await self._write(queue, decisions)

    async def _domains(self) -> dict[str, Domain]:
        """Return the domains of the tree with the budgets in force."""
        tree = (await self.api.get_power_tree(self.file.tree)).document.tree
        now = self.clock.now()
        stored = [each async for each in self.api.iter_power_budgets(limit=PAGE_LIMIT_MAX)]
        in_force = {each.domain: each.budget.limit_w for each in stored if each.budget.expires_at > now}
        domains = domains_of(tree, budgets_w=in_force)
        for name in (*self.file.rows, *self.file.reserved_w):
            if name not in domains:
                error = UnknownNameError(kind="power domain", name=name, known=domains)
                raise PlanUnusableError(f"power tree {self.file.tree}: {error}")
        return domains

    async def _write(self, queue: PowerQueue, decisions: Sequence[Decision]) -> bool:
        now = self.clock.now()
        writes = [
            (DecisionKind.ADMITTED, entry, without_gpus(entry.check, now=now))
            for entry in queue.queued.values()
            if not entry.demand.pod_sets
        ]
        for each in decisions:
            entry = queue.queued[each.job.name]
            state = state_of(each, entry.demand, entry.check, self.file, now=now)
            writes.append((KINDS[type(each)], entry, state))
        ok = True
        for kind, entry, state in writes:
            if kind is DecisionKind.HELD:
                self._keep_place(entry)
            else:
                self._places.pop(entry.workload.metadata.uid, None)
            ok &= await self._set(kind, entry.workload, entry.at, state)
        for unmeasured in queue.unmeasured:
            state = retry(unmeasured.check, unmeasured.reason, self.file, now=now)
            ok &= await self._set(DecisionKind.UNMEASURED, unmeasured.workload, unmeasured.at, state)
        return ok

    async def _set(self, kind: DecisionKind, workload: Workload, at: int, state: Mapping[str, Any]) -> bool:
        """Write one decision; a workload that changed meanwhile is read again by the next reconcile."""
        if self._logged.get(workload.metadata.uid) != state["message"]:
            self._logged[workload.metadata.uid] = state["message"]
            log.info(
                "decided", decision=kind.value, workload=workload.key, message=state["message"], act=self.settings.act
            )
            self.metrics.count_decision(kind)
        if not self.settings.act:
            return True
        try:
            async with self.leadership.acting():
                await self.cluster.set_state(workload, at, state)
        except OvertakenError as error:
            log.info("workload_changed", workload=workload.key, reason=str(error))
        except ActuationError as error:
            log.warning("decision_not_written", workload=workload.key, reason=str(error))
            return False
        return True

    def _keep_place(self, entry: Queued) -> None:
        until = self.clock.now() + timedelta(seconds=PLACE_RETRIES * self.file.retry_s)
        job = job_of(entry.workload, entry.demand, ready=False)
        self._places[entry.workload.metadata.uid] = Place(job=job, until_s=until.timestamp())

    def _forget(self, workloads: Sequence[Workload]) -> None:
        known = {each.metadata.uid for each in workloads if not each.finished}
        self._logged = {uid: text for uid, text in self._logged.items() if uid in known}
        self._places = {uid: place for uid, place in self._places.items() if uid in known}

    def _measure(self, domains: Mapping[str, Domain], queue: PowerQueue, decisions: Sequence[Decision]) -> None:
        jobs_w = dict.fromkeys(self.file.rows, 0.0)
        for job in queue.running:
            for row in job.rows & jobs_w.keys():
                jobs_w[row] += job.demand_w
        for each in decisions:
            if isinstance(each, Admitted):
                jobs_w[each.row] += each.job.demand_w
        self.metrics.set_rows(jobs_w, {row: _limit_w(domains, row) for row in self.file.rows})
        admitted = sum(isinstance(each, Admitted) for each in decisions)
        self.metrics.set_waiting(len(queue.waiting) - admitted)


def _limit_w(domains: Mapping[str, Domain], row: str) -> float | None:
    """Return the smallest limit of a row and the domains above it."""
    limits, here = [], domains.get(row)
    while here is not None:
        limits.append(here.limit_w)
        here = domains.get(here.parent) if here.parent is not None else None
    return min((limit_w for limit_w in limits if limit_w is not None), default=None)
