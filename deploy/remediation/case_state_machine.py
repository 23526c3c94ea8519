"""The next step of a case on a Ray cluster: a pure function of the case, the desired node state and the snapshot.

    observed                                               stage        action
    the node takes work                                    draining     drain
    ranks on it can checkpoint, and have not yet           evacuating   none
    other ranks on it                                      migrating    end these workers
    a run has not reported a step elsewhere                restarting   none
    no work left, state quarantined or cordoned            replaced     hook `replace`
    no work left, state probing, node absent               replaced     hooks `replace` and `probe-only`
    no work left, state probing, node returned to probe    replaced     probe
    state in service                                       unchanged    hook `release`

The node states and their transitions are those of `faults.quarantine.life_cycle`.  The case is the only stored state,
the cluster shows the effect of every action, and every action is idempotent.  The next controller can therefore
continue after any action.  docs/explanation/runtime/remediation.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from api.schemas.remediation import MAX_RAY_NODES, CaseSpec, RemediationStage, RunCase
from deploy.remediation.actuator import Action, Advance, Probe, RunHook, moved
from deploy.remediation.cluster_interface import PROBE_ONLY_LABEL, ClusterSnapshot, RayNode
from faults.quarantine import OUT_OF_SERVICE, NodeState
from fleetwright.ray_train.run_status import RunPhase, RunView


@dataclass(frozen=True, slots=True)
class Drain:
    ray_ids: tuple[str, ...]
    name: ClassVar[str] = "drain"


@dataclass(frozen=True, slots=True)
class EndWorkers:
    attempts: tuple[tuple[str, int], ...]
    ray_ids: frozenset[str]
    name: ClassVar[str] = "end-workers"


def advance(case: CaseSpec, *, desired: NodeState, snapshot: ClusterSnapshot, now: datetime) -> Advance:
    """Take one step towards the desired state of the node."""
    case = _with_runs(case, snapshot)
    if desired not in OUT_OF_SERVICE:
        message = f"released: start it again without the label {PROBE_ONLY_LABEL}"
        return Advance(case=moved(case, desired, case.stage, now, message), actions=(RunHook("release"),))
    here = snapshot.nodes_named(case.node)
    undrained = tuple(node.id for node in here if not node.draining and not node.is_probe_only)
    case = case.model_copy(update={"ray_nodes": _known(case, here)})
    if undrained:
        after = moved(case, desired, RemediationStage.DRAINING, now, "no new work is placed on it")
        return Advance(case=after, actions=(Drain(undrained),))
    return _move_work(case, desired=desired, snapshot=snapshot, here=here, now=now)


def _move_work(
    case: CaseSpec, *, desired: NodeState, snapshot: ClusterSnapshot, here: Sequence[RayNode], now: datetime
) -> Advance:
    ids = frozenset(case.ray_nodes)
    there = [run for run in snapshot.runs if run.places_on(ids)]
    waiting = [run for run in there if _may_checkpoint(case, run, now)]
    if waiting:
        names = ", ".join(run.run for run in waiting)
        return Advance(
            case=moved(case, desired, RemediationStage.EVACUATING, now, f"waits for a checkpoint of {names}")
        )
    if there:
        attempts = tuple((run.run, run.attempt) for run in there)
        names = ", ".join(f"{run.run} (attempt {run.attempt})" for run in there)
        after = moved(case, desired, RemediationStage.MIGRATING, now, f"ends its workers of {names}")
        return Advance(case=after, actions=(EndWorkers(attempts, ids),))
    unsettled = [run for run in case.runs if not run.settled]
    if unsettled:
        message = ", ".join(_restarting(run, snapshot) for run in unsettled)
        return Advance(case=moved(case, desired, RemediationStage.RESTARTING, now, message))
    return _without_work(case, desired=desired, here=here, now=now)


def _without_work(case: CaseSpec, *, desired: NodeState, here: Sequence[RayNode], now: datetime) -> Advance:
    replace: tuple[Action, ...] = (RunHook("replace"),)
    if desired is not NodeState.PROBING:
        cordoned = desired is NodeState.CORDONED
        message = "out until an operator releases it" if cordoned else "out; probed when its cooldown is over"
        return Advance(case=moved(case, desired, RemediationStage.REPLACED, now, message), actions=replace)
    returned = next((node for node in here if node.is_probe_only and not node.draining), None)
    if returned is None:
        message = f"waits for its probe: start it again with the label {PROBE_ONLY_LABEL}"
        after = moved(case, desired, RemediationStage.REPLACED, now, message)
        return Advance(case=after, actions=(*replace, RunHook("probe-only")))
    return Advance(
        case=moved(case, desired, RemediationStage.REPLACED, now, "is probed"), actions=(Probe(returned.id),)
    )


def _may_checkpoint(case: CaseSpec, run: RunView, now: datetime) -> bool:
    """Return whether its ranks step, the deadline is not over, and no checkpoint came since the case was opened."""
    known = next((each for each in case.runs if each.run == run.run), None)
    late = case.deadline is None or now >= case.deadline
    if not case.can_checkpoint or late or run.phase is not RunPhase.RUNNING:
        return False
    return known is None or run.checkpoint_step == known.checkpoint_step


def _known(case: CaseSpec, here: Sequence[RayNode]) -> tuple[str, ...]:
    """Return current and former Ray ids.  Of too many, former ids are dropped, because no work runs under them."""
    now = {node.id for node in here if not node.is_probe_only}
    former = [each for each in case.ray_nodes if each not in now]
    return tuple(sorted({*now, *former[: max(0, MAX_RAY_NODES - len(now))]}))


def _with_runs(case: CaseSpec, snapshot: ClusterSnapshot) -> CaseSpec:
    """Add the runs with workers on the node to the case, and settle the runs that step on other nodes."""
    ids = frozenset(case.ray_nodes) | {node.id for node in snapshot.nodes_named(case.node)}
    known = {run.run: _observed(run, snapshot, ids) for run in case.runs}
    for view in snapshot.runs:
        workers = len(view.places_on(ids))
        if workers and (view.run not in known or known[view.run].attempt != view.attempt):
            known[view.run] = RunCase(
                run=view.run, attempt=view.attempt, workers=workers, checkpoint_step=view.checkpoint_step
            )
    return case.model_copy(update={"runs": tuple(known[name] for name in sorted(known))})


def _observed(run: RunCase, snapshot: ClusterSnapshot, ids: frozenset[str]) -> RunCase:
    if run.settled or run.run in snapshot.silent:
        return run
    view = snapshot.run(run.run)
    if view is None:
        return run.model_copy(update={"over": True})
    if view.attempt > run.attempt and not view.places_on(ids) and view.attempt_step is not None:
        return run.model_copy(update={"resumed_attempt": view.attempt, "resumed_step": view.attempt_step})
    return run


def _restarting(run: RunCase, snapshot: ClusterSnapshot) -> str:
    view = snapshot.run(run.run)
    if view is None or view.phase is not RunPhase.RUNNING or view.attempt <= run.attempt:
        return f"{run.run} has not restarted yet"
    return f"{run.run} runs on other nodes and has not reported a step yet"
