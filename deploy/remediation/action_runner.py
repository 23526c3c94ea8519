"""Runs one action at a time, while this process is the leader and the fleet is not frozen, and records the result."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from api.client import AsyncClient
from api.schemas.remediation import MAX_ACTIONS, CaseAction, CaseSpec
from deploy.common.errors import ActuationError, NotLeadingError
from deploy.common.leader_election import Leadership
from deploy.remediation.case_state_machine import Action, Drain, EndWorkers, Probe, RunHook
from deploy.remediation.cluster_interface import ClusterInterface, ClusterSnapshot, ProbeReading
from deploy.remediation.metrics import RemediationMetrics

log = structlog.get_logger()

HOOK: Final = "hook-"  # prefix of a hook's action name


class FrozenError(ActuationError):
    """The fleet is frozen."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    case: CaseSpec
    reading: ProbeReading | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRunner:
    api: AsyncClient
    cluster: ClusterInterface
    leadership: Leadership
    metrics: RemediationMetrics
    now: Callable[[], datetime]

    async def run(self, action: Action, *, case: CaseSpec, case_id: str, snapshot: ClusterSnapshot) -> ActionResult:
        """Run an action.  A failed action is recorded too."""
        name = _name(action)
        if isinstance(action, RunHook) and any(each.action == name for each in case.actions):
            return ActionResult(case)
        if (await self.api.get_freeze()).document.frozen:
            raise FrozenError("the fleet is frozen")
        try:
            async with self.leadership.acting():
                detail, reading = await self._run(action, case=case, case_id=case_id, snapshot=snapshot)
        except NotLeadingError:
            raise
        except ActuationError as error:
            log.warning("action_failed", case=case_id, node=case.node, reason=str(error))
            self.metrics.count_action(name, ok=False)
            return ActionResult(with_action(case, "failed", str(error), at=self.now()), failed=True)
        if not detail:
            return ActionResult(case)  # the operator gave no such hook
        self.metrics.count_action(name, ok=True)
        return ActionResult(with_action(case, name, detail, at=self.now()), reading)

    async def _run(
        self, action: Action, *, case: CaseSpec, case_id: str, snapshot: ClusterSnapshot
    ) -> tuple[str, ProbeReading | None]:
        """Return the result as text; empty if the operator gave no such hook."""
        cluster = self.cluster
        match action:
            case Drain(ray_ids):
                left_s = max(1.0, (case.deadline - self.now()).total_seconds()) if case.deadline else 1.0
                for ray_id in ray_ids:
                    await cluster.drain(ray_id, reason=f"fleetwright case {case_id}", deadline_s=left_s)
                return ", ".join(ray_ids), None
            case EndWorkers(attempts, ray_ids):
                ended = {
                    run: await cluster.end_workers(run, attempt=attempt, ray_ids=ray_ids) for run, attempt in attempts
                }
                return ", ".join(f"{count} of {run}" for run, count in ended.items()), None
            case Probe(ray_id):
                reading = await cluster.probe(ray_id, good=_good(snapshot, case))
                return f"{'passed' if reading.passed else 'failed'}: {reading.detail}", reading
            case RunHook(hook):
                return await cluster.run_hook(hook, node=case.node, case_id=case_id), None


def _name(action: Action) -> str:
    match action:
        case Drain():
            return "drain"
        case EndWorkers():
            return "end-workers"
        case Probe():
            return "probe"
        case RunHook(hook):
            return f"{HOOK}{hook}"


def with_action(case: CaseSpec, action: str, detail: str, *, at: datetime) -> CaseSpec:
    """Return the case with one more action; a repetition of the last one is not added."""
    printable = "".join(sign if sign.isprintable() else " " for sign in detail)[:1000]
    last = case.actions[-1] if case.actions else None
    if last is not None and (last.action, last.detail) == (action, printable):
        return case
    return with_actions(case, (CaseAction(at=at, action=action, detail=printable),))


def with_actions(case: CaseSpec, actions: Sequence[CaseAction]) -> CaseSpec:
    """Add the actions.  Of too many, the oldest are dropped, but no hooks: each hook runs once per case."""
    kept = [*case.actions, *(action for action in actions if action not in case.actions)]
    while len(kept) > MAX_ACTIONS:
        kept.remove(next(each for each in kept if not each.action.startswith(HOOK)))
    return case.model_copy(update={"actions": tuple(kept)})


def split(actions: Iterable[Action]) -> Iterator[Action]:
    for action in actions:
        match action:
            case Drain(ray_ids):
                yield from (Drain((ray_id,)) for ray_id in ray_ids)
            case EndWorkers(attempts, ray_ids):
                yield from (EndWorkers((attempt,), ray_ids) for attempt in attempts)
            case _:
                yield action


def _good(snapshot: ClusterSnapshot, case: CaseSpec) -> list[str]:
    """Return the nodes to compare a probed node with, those of its pool first."""
    probed = next((node for node in snapshot.nodes_named(case.node)), None)
    pool = probed.pool if probed is not None else None
    others = [
        node for node in snapshot.nodes if node.name != case.node and not node.draining and not node.is_probe_only
    ]
    return [node.id for node in sorted(others, key=lambda node: (node.pool != pool, node.is_head, node.id))]
