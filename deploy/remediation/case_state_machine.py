"""What a case needs next: a pure function of the case, of what is wanted and of what is seen.  docs/healing.md

Nothing is remembered beyond the case: whatever was done shows in the next sight, so a healer that was ended between
two acts is carried on by the next one, and an act that is done twice does no more than once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from api.schemas.remediation import MAX_RAY_NODES, CasePhase, CaseSpec, RunCase
from deploy.remediation.cluster_interface import Sight
from deploy.remediation.ray_nodes import RayNode
from deploy.training.run_status import RunPhase, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the isolation policy wants of a node now."""

    out: bool
    probed: bool = False
    kept: bool = False  # until a person releases it


@dataclass(frozen=True, slots=True)
class Drain:
    """Place nothing new on these Ray nodes."""

    ray_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    """Kill these attempts' workers on these Ray nodes."""

    attempts: tuple[tuple[str, int], ...]
    ray_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Probe:
    """Probe the node where it is now."""

    ray_id: str


@dataclass(frozen=True, slots=True)
class CallOut:
    """Run an operator's command, once per case."""

    hook: str


Act = Drain | End | Probe | CallOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The case as it is now, and what to do about it."""

    case: CaseSpec
    acts: tuple[Act, ...] = field(default=())


def advance(case: CaseSpec, *, wanted: Wanted, sight: Sight, now: datetime) -> Move:
    """One move."""
    case = _with_runs(case, sight)
    if not wanted.out:
        return _released(case, now)
    here = sight.called(case.node)
    undrained = tuple(node.id for node in here if not node.draining and not node.on_probation)
    case = case.model_copy(update={"ray_nodes": _known(case, here)})
    if undrained:
        return Move(case=_phase(case, CasePhase.DRAINING, now, "nothing new is placed on it"), acts=(Drain(undrained),))
    return _without_new_work(case, wanted=wanted, sight=sight, here=here, now=now)


def _without_new_work(case: CaseSpec, *, wanted: Wanted, sight: Sight, here: Sequence[RayNode], now: datetime) -> Move:
    ids = frozenset(case.ray_nodes)
    there = [run for run in sight.runs if run.places_on(ids)]
    waiting = [run for run in there if _may_checkpoint(case, run, now)]
    if waiting:
        names = ", ".join(run.run for run in waiting)
        return Move(case=_phase(case, CasePhase.EVACUATING, now, f"waits for a checkpoint of {names}"))
    if there:
        attempts = tuple((run.run, run.attempt) for run in there)
        names = ", ".join(f"{run.run} (attempt {run.attempt})" for run in there)
        return Move(
            case=_phase(case, CasePhase.MIGRATING, now, f"ends its workers of {names}"), acts=(End(attempts, ids),)
        )
    unsettled = [run for run in case.runs if not run.settled]
    if unsettled:
        told = ", ".join(_restarting(run, sight) for run in unsettled)
        return Move(case=_phase(case, CasePhase.RESTARTING, now, told))
    return _out(case, wanted=wanted, here=here, now=now)


def _out(case: CaseSpec, *, wanted: Wanted, here: Sequence[RayNode], now: datetime) -> Move:
    """Nothing of ours is on it any more."""
    acts: tuple[Act, ...] = (CallOut("replace"),)
    if wanted.kept:
        return Move(case=_phase(case, CasePhase.KEPT, now, "kept out until a person releases it"), acts=acts)
    if not wanted.probed:
        return Move(
            case=_phase(case, CasePhase.REPLACED, now, "out; it is probed when its probation is served"), acts=acts
        )
    back = next((node for node in here if node.on_probation and not node.draining), None)
    if back is None:
        told = "waits to be probed: start it again with the label fleetwright.io/probation"
        return Move(case=_phase(case, CasePhase.PROBING, now, told), acts=(*acts, CallOut("probation")))
    return Move(case=_phase(case, CasePhase.PROBING, now, "is probed"), acts=(Probe(back.id),))


def _released(case: CaseSpec, now: datetime) -> Move:
    told = "released: start it again without the label fleetwright.io/probation"
    return Move(case=_phase(case, CasePhase.RELEASED, now, told), acts=(CallOut("release"),))


def _may_checkpoint(case: CaseSpec, run: RunView, now: datetime) -> bool:
    """Its ranks still step, time is left, and none has come since the case was opened."""
    known = next((each for each in case.runs if each.run == run.run), None)
    if not case.patient or case.deadline is None or now >= case.deadline or run.phase is not RunPhase.RUNNING:
        return False
    return known is None or run.checkpoint_step == known.checkpoint_step


def _known(case: CaseSpec, here: Sequence[RayNode]) -> tuple[str, ...]:
    """Ids under which it is or was there.  Of too many those go under which it has left, and nothing runs any more."""
    now = {node.id for node in here if not node.on_probation}
    left = [each for each in case.ray_nodes if each not in now]
    return tuple(sorted({*now, *left[: max(0, MAX_RAY_NODES - len(now))]}))


def _with_runs(case: CaseSpec, sight: Sight) -> CaseSpec:
    """Runs that have workers on the node join the case; those that step elsewhere are settled."""
    ids = frozenset(case.ray_nodes) | {node.id for node in sight.called(case.node)}
    known = {run.run: _seen(run, sight, ids) for run in case.runs}
    for view in sight.runs:
        workers = len(view.places_on(ids))
        if workers and (view.run not in known or known[view.run].attempt != view.attempt):
            known[view.run] = RunCase(
                run=view.run, attempt=view.attempt, workers=workers, checkpoint_step=view.checkpoint_step
            )
    return case.model_copy(update={"runs": tuple(known[name] for name in sorted(known))})


def _seen(run: RunCase, sight: Sight, ids: frozenset[str]) -> RunCase:
    if run.settled or run.run in sight.silent:
        return run
    view = sight.run(run.run)
    if view is None:
        return run.model_copy(update={"over": True})
    if view.attempt > run.attempt and not view.places_on(ids) and view.attempt_step is not None:
        return run.model_copy(update={"resumed_attempt": view.attempt, "resumed_step": view.attempt_step})
    return run


def _restarting(run: RunCase, sight: Sight) -> str:
    view = sight.run(run.run)
    if view is None or view.phase is not RunPhase.RUNNING or view.attempt <= run.attempt:
        return f"{run.run} has yet to restart"
    return f"{run.run} runs elsewhere and has yet to report a step"


def _phase(case: CaseSpec, phase: CasePhase, now: datetime, message: str) -> CaseSpec:
    since = case.phase_since if phase is case.phase else now
    return case.model_copy(update={"phase": phase, "phase_since": since, "message": message[:1000]})
