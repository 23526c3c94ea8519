"""Drives a Ray cluster: drains nodes, ends the workers of training runs, and probes nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from api.schemas.quarantine import Evaluation, ProbeReport
from api.schemas.remediation import CaseSpec
from deploy.remediation.actuator import (
    Action,
    ActionOutcome,
    ActionRecord,
    Advance,
    CaseContext,
    Probe,
    ProbeReading,
    RunHook,
)
from deploy.remediation.case_state_machine import Drain, EndWorkers, advance
from deploy.remediation.cluster_interface import ClusterInterface, ClusterSnapshot, evaluation_of


@dataclass(frozen=True, slots=True)
class RayActuator:
    cluster: ClusterInterface
    probes_at_once: int = 1  # two would share the links that they measure

    async def observe(self) -> ClusterSnapshot:
        return await self.cluster.observe()

    def evaluation(
        self, snapshot: ClusterSnapshot, *, out: AbstractSet[str], probed: Mapping[str, ProbeReport]
    ) -> Evaluation | None:
        if all(node.is_head for node in snapshot.nodes):
            return None
        return evaluation_of(snapshot, out=out, probed=probed)

    def opened(self, case: CaseSpec, snapshot: ClusterSnapshot) -> CaseSpec:
        """Add the Ray ids of the node, and the runs with workers on them."""
        ids = tuple(sorted(each.id for each in snapshot.nodes_named(case.node)))
        case = case.model_copy(update={"ray_nodes": ids})
        runs = advance(case, desired=case.state, snapshot=snapshot, now=case.opened_at).case.runs
        return case.model_copy(update={"runs": runs})

    def advance(self, case: CaseSpec, context: CaseContext[ClusterSnapshot]) -> Advance:
        after = advance(case, desired=context.desired, snapshot=context.snapshot, now=context.now)
        return Advance(case=after.case, actions=tuple(split(after.actions)))

    async def run(self, action: Action, *, case: CaseSpec, context: CaseContext[ClusterSnapshot]) -> ActionOutcome:
        detail, reading = await self._run(action, case=case, context=context)
        records = (ActionRecord(action.name, detail),) if detail else ()
        return ActionOutcome(records=records, reading=reading)

    async def observe_after(
        self,
        actions: Sequence[Action],  # noqa: ARG002 - of the protocol
        *,
        case: CaseSpec,  # noqa: ARG002
        context: CaseContext[ClusterSnapshot],  # noqa: ARG002
    ) -> ClusterSnapshot | None:
        """Return None: the effects on training runs take time."""
        return None

    async def _run(
        self, action: Action, *, case: CaseSpec, context: CaseContext[ClusterSnapshot]
    ) -> tuple[str, ProbeReading | None]:
        """Return the result as text; empty if the operator gave no such hook."""
        cluster = self.cluster
        match action:
            case Drain(ray_ids):
                left_s = max(1.0, (case.deadline - context.now).total_seconds()) if case.deadline else 1.0
                for ray_id in ray_ids:
                    await cluster.drain(ray_id, reason=f"fleetwright case {context.case_id}", deadline_s=left_s)
                return ", ".join(ray_ids), None
            case EndWorkers(attempts, ray_ids):
                ended = {
                    run: await cluster.end_workers(run, attempt=attempt, ray_ids=ray_ids) for run, attempt in attempts
                }
                return ", ".join(f"{count} of {run}" for run, count in ended.items()), None
            case Probe(ray_id):
                reading = await cluster.probe(ray_id, good=_good(context.snapshot, case))
                return f"{'passed' if reading.passed else 'failed'}: {reading.detail}", reading
            case RunHook(hook):
                return await cluster.run_hook(hook, node=case.node, case_id=context.case_id), None
            case _:
                raise AssertionError(f"no action of a Ray cluster: {action!r}")


def split(actions: Iterable[Action]) -> Iterator[Action]:
    """Return one action per node and run: each is recorded before the next one."""
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
