"""Drives the GPU nodes of a Kubernetes cluster.  Per reconcile it lists all nodes and all pods once.

After a cordon or a release it reads this node and its pods again, so the case advances without another reconcile.

A write tests the resource version, and is prepared again from the current node if another writer was first.  An
eviction that a disruption budget or a busy server refuses is repeated with a growing wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

import structlog

from api.schemas.quarantine import Evaluation, ProbeReport
from api.schemas.remediation import CaseSpec
from deploy.common.backoff import Backoff
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError, OvertakenError
from deploy.common.kubernetes_client import KubernetesWriter, RefusedError, listed
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
from deploy.remediation.hooks import Hooks
from deploy.remediation.kubernetes_nodes import patches
from deploy.remediation.kubernetes_nodes.case_state_machine import Cordon, Evict, Uncordon, advance, condition_message
from deploy.remediation.kubernetes_nodes.snapshot import (
    GpuPod,
    KubernetesNode,
    NodesSnapshot,
    evaluation_of,
    gpu_node,
    gpu_pods,
    node_of,
)

log = structlog.get_logger()

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
EVENTS: Final = f"/api/v1/namespaces/{patches.NAMESPACE}/events"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"  # pods that hold their resources
PLACED: Final = f"spec.nodeName!=,{UNFINISHED}"
CONFLICTS: Final = 8  # in a row, of one write: a kubelet writes its node every few seconds at most
PARALLEL: Final = 16  # writes at once
PROBES: Final = 8  # commands at once, each for a node of its own
EVICTION_FIRST_S: Final = 1.0
EVICTION_MAX_S: Final = 30.0
PROBE: Final = "probe"


class Evicted(StrEnum):
    """Which pods leave a node that is out of service."""

    GPU = "gpu"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesActuator:
    kubernetes: KubernetesWriter
    hooks: Hooks
    selector: str = ""  # of labels; empty: all nodes with GPUs
    evicted: Evicted = Evicted.GPU
    clock: Clock = field(default_factory=Clock)
    probes_at_once: int = PROBES
    _writes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL), init=False)
    _blocked: dict[str, str] = field(default_factory=dict, init=False)  # by uid of the pod
    _retries: Backoff = field(
        default_factory=lambda: Backoff(first_s=EVICTION_FIRST_S, max_s=EVICTION_MAX_S), init=False
    )

    async def observe(self) -> NodesSnapshot:
        """List nodes first: a pod that arrives in between is then on a node of the snapshot."""
        query = {"labelSelector": self.selector} if self.selector else {}
        try:
            found = [gpu_node(node) async for node in listed(self.kubernetes, NODES, **query)]
            nodes = {node.name: node for node in found if node is not None}
            placed = [pod async for pod in listed(self.kubernetes, PODS, fieldSelector=PLACED)] if nodes else []
            pods = gpu_pods(placed, nodes.keys())
        except (KeyError, TypeError, AttributeError) as error:
            raise ActuationError(f"the API server returned no valid node or pod: {error!r}") from error
        present = {pod.uid for each in pods.values() for pod in each}
        for uid in self._blocked.keys() - present:
            del self._blocked[uid]
        self._retries.forget_all_but(present)
        return self._snapshot(nodes, pods)

    async def observe_after(
        self, actions: Sequence[Action], *, case: CaseSpec, context: CaseContext[NodesSnapshot]
    ) -> NodesSnapshot | None:
        """Read the node first, as `observe` does: a pod that arrived before the cordon is then found."""
        if not any(isinstance(each, Cordon | Uncordon) for each in actions):
            return None
        query = {"fieldSelector": f"spec.nodeName={case.node},{UNFINISHED}"}
        try:
            node = node_of(await self.kubernetes.get(f"{NODES}/{case.node}"))
            placed = [pod async for pod in listed(self.kubernetes, PODS, **query)]
            pods = gpu_pods(placed, {case.node})
        except (KeyError, TypeError, AttributeError) as error:
            raise ActuationError(f"the API server returned no valid node or pod: {error!r}") from error
        before = context.snapshot
        others = {name: each for name, each in before.pods.items() if name != case.node}
        return self._snapshot({**before.nodes, node.name: node}, others | pods)

    def _snapshot(self, nodes: Mapping[str, KubernetesNode], pods: Mapping[str, tuple[GpuPod, ...]]) -> NodesSnapshot:
        now_s, present = self.clock.steady_s(), (pod.uid for each in pods.values() for pod in each)
        waiting = frozenset(uid for uid in present if not self._retries.is_due(uid, now_s=now_s))
        return NodesSnapshot(nodes=nodes, pods=pods, blocked=dict(self._blocked), waiting=waiting)

    def evaluation(
        self, snapshot: NodesSnapshot, *, out: AbstractSet[str], probed: Mapping[str, ProbeReport]
    ) -> Evaluation | None:
        return evaluation_of(snapshot, out=out, probed=probed)

    def opened(self, case: CaseSpec, snapshot: NodesSnapshot) -> CaseSpec:  # noqa: ARG002 - of the protocol
        return case

    def advance(self, case: CaseSpec, context: CaseContext[NodesSnapshot]) -> Advance:
        commands = self.hooks.commands
        after = advance(case, context, can_probe=PROBE in commands, evicts=self.evicted is Evicted.GPU)
        actions = tuple(each for each in after.actions if not isinstance(each, RunHook) or each.hook in commands)
        return Advance(case=after.case, actions=actions)

    async def run(self, action: Action, *, case: CaseSpec, context: CaseContext[NodesSnapshot]) -> ActionOutcome:
        match action:
            case Cordon(name):
                return await self._cordon(context.snapshot.nodes[name], case, context)
            case Uncordon(name):
                return await self._uncordon(context.snapshot.nodes[name], case, context)
            case Evict(pods):
                return await self._evict(pods, case, context)
            case Probe(name):
                return await self._probe(name, context.case_id)
            case RunHook(hook):
                detail = await self.hooks.run(hook, node=case.node, case_id=context.case_id)
                return ActionOutcome(records=(ActionRecord(action.name, detail),) if detail else ())
            case _:
                raise AssertionError(f"no action on a Kubernetes node: {action!r}")

    async def _cordon(self, node: KubernetesNode, case: CaseSpec, context: CaseContext[NodesSnapshot]) -> ActionOutcome:
        message = condition_message(case)
        await self._patch(node, lambda current: patches.cordon_patch(current, context.case_id))
        if node.healthy != ("False", message):
            await self._set_condition(node, healthy=False, message=message)
        detail = "the node was cordoned before" if node.mark is None and node.cordoned else "cordoned and tainted"
        await self._announce(node, case, context, reason="Quarantined", message=f"{detail}: {message}")
        return _done(Cordon.name, detail)

    async def _uncordon(
        self, node: KubernetesNode, case: CaseSpec, context: CaseContext[NodesSnapshot]
    ) -> ActionOutcome:
        """Announce the release before the last write: without marks, the next controller would not repeat it."""
        if node.healthy is not None and node.healthy[0] != "True":
            await self._set_condition(node, healthy=True, message="in service")
        keeps = node.mark is None or not node.mark.cordoned
        detail = "untainted; the cordon is not ours" if keeps else "uncordoned and untainted"
        await self._announce(node, case, context, reason="Uncordoned", message="the node returns to service")
        await self._patch(node, lambda current: patches.uncordon_patch(current, context.case_id))
        return _done(Uncordon.name, detail)

    async def _evict(
        self, pods: Sequence[GpuPod], case: CaseSpec, context: CaseContext[NodesSnapshot]
    ) -> ActionOutcome:
        node = context.snapshot.nodes[case.node]
        outcomes = await asyncio.gather(*(self._evict_one(pod, node, case, context) for pod in pods))
        evicted = [str(pod) for pod, refused in zip(pods, outcomes, strict=True) if not refused]
        here = context.snapshot.pods_on(node.name)  # with refused pods that are not due, so that the record is stable
        refused = [f"{pod}: {self._blocked[pod.uid]}" for pod in here if pod.uid in self._blocked]
        records = [ActionRecord(Evict.name, ", ".join(evicted))] if evicted else []
        records += [ActionRecord(f"{Evict.name}-blocked", "; ".join(refused))] if any(outcomes) else []
        return ActionOutcome(records=tuple(records))

    async def _evict_one(
        self, pod: GpuPod, node: KubernetesNode, case: CaseSpec, context: CaseContext[NodesSnapshot]
    ) -> bool:
        """Evict a pod; return whether that was refused.  A pod that has gone is evicted."""
        await self._announce(node, case, context, reason="Evicting", message=f"evicts pod {pod}", subject=pod.uid)
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        body = patches.eviction(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        try:
            await self._write(lambda: self.kubernetes.post(path, body))
        except ActuationError as error:
            # Not found: it has ended.  Conflict: another pod has its name now.
            if not (isinstance(error, RefusedError) and error.status in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}):
                self._blocked[pod.uid] = str(error).partition(": ")[2] or str(error)
                self._retries.failed(pod.uid, now_s=self.clock.steady_s())
                return True
        self._blocked.pop(pod.uid, None)
        return False

    async def _probe(self, node: str, case_id: str) -> ActionOutcome:
        try:
            detail = await self.hooks.run(PROBE, node=node, case_id=case_id)
            reading = ProbeReading(passed=True, detail=detail)
        except ActuationError as error:
            reading = ProbeReading(passed=False, detail=str(error))
        result = f"{'passed' if reading.passed else 'failed'}: {reading.detail}"
        return ActionOutcome(records=(ActionRecord(Probe.name, result),), reading=reading)

    async def _patch(self, node: KubernetesNode, patch_of: Callable[[KubernetesNode], patches.Body | None]) -> None:
        """Patch the node; if it has changed since, decide again from the current node."""
        path = f"{NODES}/{node.name}"
        for _attempt in range(CONFLICTS):
            patch = patch_of(node)
            if patch is None:
                return
            try:
                await self._write(lambda patch=patch: self.kubernetes.patch(path, patch))  # type: ignore[misc]
            except RefusedError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
                node = node_of(await self.kubernetes.get(path))
            else:
                return
        raise OvertakenError(f"{node.name} changed {CONFLICTS} times while it was written")

    async def _set_condition(self, node: KubernetesNode, *, healthy: bool, message: str) -> None:
        patch = patches.condition_patch(healthy=healthy, message=message, now=self.clock.now())
        await self._write(lambda: self.kubernetes.patch_strategically(f"{NODES}/{node.name}/status", patch))

    async def _announce(
        self,
        node: KubernetesNode,
        case: CaseSpec,
        context: CaseContext[NodesSnapshot],
        *,
        reason: str,
        message: str,
        subject: str = "",
    ) -> None:
        """Post an event of the node, once.  A refusal does not stop the action: the case records it too."""
        key = f"{context.case_id} {case.opened_at.isoformat()} {subject}"
        text = f"{message} (case {context.case_id})"
        body = patches.event(node, reason=reason, message=text, key=key, now=self.clock.now())
        try:
            await self._write(lambda: self.kubernetes.post(EVENTS, body))
        except RefusedError as error:
            if error.status != HTTPStatus.CONFLICT:  # it exists
                log.warning("event_refused", node=node.name, reason=str(error))

    async def _write(self, request: Callable[[], Awaitable[Any]]) -> None:
        async with self._writes:
            await request()


def _done(name: str, detail: str) -> ActionOutcome:
    return ActionOutcome(records=(ActionRecord(name, detail),))
