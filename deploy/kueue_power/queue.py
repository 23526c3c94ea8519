"""What the workloads of a cluster are for power: jobs that draw, jobs that wait, and places in the queue.  Pure.

    check Ready, not finished                       draws, on the row and with the watts of its pod set updates
    quota reserved, evicted, check was Ready        may draw until Kueue releases the quota, on a row not known
    quota reserved, check Pending                   waits for a decision
    no quota, sent back by this check a while ago   keeps its place before later jobs

Kueue resets a check when it evicts a workload.  It counts retries only of a check that was not Ready, so a workload
with a retry count has not drawn since.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from deploy.kueue_power.demand import Demand, DemandModel, UnknownDemandError
from deploy.kueue_power.workloads import WATTS, CheckState, CheckStatus, Workload
from power.job_admission import Job, RunningJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A job that Kueue queues again, until `until_s`."""

    job: Job
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A workload that waits for a decision."""

    workload: Workload
    check: CheckStatus
    at: int  # of the check in the list
    demand: Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """A workload whose watts are not known."""

    workload: Workload
    check: CheckStatus
    at: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerQueue:
    running: tuple[RunningJob, ...]
    waiting: tuple[Job, ...]
    queued: Mapping[str, Queued]  # by the name of the job
    unmeasured: tuple[Unmeasured, ...]


def queue_of(
    workloads: Sequence[Workload],
    *,
    checks: Sequence[str],
    undecided: Collection[str] = (),
    model: DemandModel,
    places: Mapping[str, Place],  # by the uid of the workload
    now_s: float,
) -> PowerQueue:
    """`undecided`: those of the checks that are not usable; their jobs draw power all the same."""
    running: list[RunningJob] = []
    waiting: list[Job] = []
    queued: dict[str, Queued] = {}
    unmeasured: list[Unmeasured] = []
    for workload in workloads:
        found = workload.check(checks)
        if found is None or workload.finished:
            continue
        at, check = found
        place = places.get(workload.metadata.uid)
        if check.state is CheckState.READY:
            if (job := _admitted(workload, check, model)) is not None:
                running.append(job)
        elif workload.has_quota and workload.evicted and check.retry_count is None and place is None:
            running.append(_leaving(workload, model))
        elif workload.has_quota and not workload.evicted and check.state is CheckState.PENDING:
            if check.name in undecided:
                continue
            try:
                demand = model.of(workload)
            except UnknownDemandError as error:
                unmeasured.append(Unmeasured(workload=workload, check=check, at=at, reason=str(error)))
                continue
            queued[workload.key] = Queued(workload=workload, check=check, at=at, demand=demand)
            waiting.append(job_of(workload, demand))
        elif place is not None and workload.spec.active and now_s < place.until_s:
            waiting.append(place.job)
    return PowerQueue(running=tuple(running), waiting=tuple(waiting), queued=queued, unmeasured=tuple(unmeasured))


def job_of(workload: Workload, demand: Demand, *, ready: bool = True) -> Job:
    return Job(
        name=workload.key,
        demand_w=demand.watts,
        priority=workload.spec.priority,
        created_at_s=workload.created_at_s,
        rows=demand.rows,
        ready=ready,
    )


def _admitted(workload: Workload, check: CheckStatus, model: DemandModel) -> RunningJob | None:
    """Return the job as it was admitted: later changes of annotations and catalogue do not change its watts."""
    updates = [each for each in check.pod_set_updates if WATTS in each.annotations]
    if not updates:
        return None  # it has no GPUs
    rows = {each.node_selector.get(model.file.node_label, "") for each in updates}
    return RunningJob(
        name=workload.key,
        demand_w=sum(float(each.annotations[WATTS]) for each in updates),
        rows=frozenset(rows),
        ends_at_s=workload.ends_at_s,
    )


def _leaving(workload: Workload, model: DemandModel) -> RunningJob:
    """Return an evicted job whose pods may still run; unknown watts would have kept it from starting."""
    try:
        demand = model.of(workload)
    except UnknownDemandError:
        return RunningJob(name=workload.key, demand_w=0.0, rows=frozenset())
    return RunningJob(name=workload.key, demand_w=demand.watts, rows=demand.rows or frozenset(model.file.rows))
