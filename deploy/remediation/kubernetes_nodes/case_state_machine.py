"""The next step of a case on a Kubernetes node: a pure function of the case, the desired node state and the snapshot.

    observed                                               stage        action
    in service, our marks on the node, or no record        unchanged    uncordon; the case stays open
    in service, another tool relies on the cordon          unchanged    none until that tool releases the node
    in service, none of our marks                          unchanged    hook `release`; the case closes
    the node is not in the cluster                         replaced     hook `replace`
    a mark is missing, another release is not done yet     unchanged    none: the budget is not free yet
    a mark is missing                                      draining     cordon
    GPU pods on the node                                   migrating    evict those that are due
    no GPU pods, state quarantined or cordoned             replaced     hook `replace`
    no GPU pods, state probing                             replaced     hook `replace`; probe, where there is a command

The annotation on the node records whether the case set the cordon, in the same patch as the cordon.  Each action is an
absolute write, and the next snapshot reads it back, so the next controller continues after any write.
docs/explanation/faults/quarantine.md
"""

from dataclasses import dataclass
from typing import ClassVar

from api.schemas.remediation import CaseSpec, RemediationStage
from deploy.remediation.actuator import Action, Advance, CaseContext, Probe, RunHook, moved
from deploy.remediation.kubernetes_nodes.snapshot import GpuPod, KubernetesNode, NodesSnapshot
from faults.quarantine import OUT_OF_SERVICE, NodeState

MAX_NAMES = 5  # of pods in a message


@dataclass(frozen=True, slots=True)
class Cordon:
    """Cordon and taint the node, and set its condition to False."""

    node: str
    name: ClassVar[str] = "cordon"


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Set the condition to True, and remove the cordon and the taint that the case set."""

    node: str
    name: ClassVar[str] = "uncordon"


@dataclass(frozen=True, slots=True)
class Evict:
    pods: tuple[GpuPod, ...]
    name: ClassVar[str] = "evict"


def advance(case: CaseSpec, context: CaseContext[NodesSnapshot], *, can_probe: bool, evicts: bool) -> Advance:
    """Take one step towards the desired state of the node."""
    node = context.snapshot.nodes.get(case.node)
    if context.desired not in OUT_OF_SERVICE:
        return _release(case, context, node)
    if node is None:
        return _without_work(case, context, "the node is not in the cluster")
    if not node.is_quarantined_for(context.case_id, condition_message(case)) or not _is_out(case):
        return _take_out(case, context)
    if evicts and (pods := context.snapshot.pods_on(node.name)):
        return _evict(case, context, pods)
    if context.desired is NodeState.PROBING:
        message = "is probed" if can_probe else "no probe command; an operator can release the node"
        return _without_work(case, context, message, *((Probe(node.name),) if can_probe else ()))
    cordoned = context.desired is NodeState.CORDONED
    message = "out until an operator releases it" if cordoned else "out; probed when its cooldown is over"
    return _without_work(case, context, message)


def condition_message(case: CaseSpec) -> str:
    """Return the message of the node condition while the node is out of service."""
    return "an operator cordoned the node" if case.diagnosis_id is None else f"diagnosis {case.diagnosis_id}"


def _release(case: CaseSpec, context: CaseContext[NodesSnapshot], node: KubernetesNode | None) -> Advance:
    mark = node.mark if node is not None and node.mark is not None and node.mark.case == context.case_id else None
    if node is not None and (mark is not None or _is_out(case)):
        if node.tool is not None and mark is not None and mark.cordoned:
            message = f"released; {node.tool} relies on the cordon, which stays until it releases the node"
            return Advance(case=_with_message(case, message))
        return Advance(case=_with_message(case, "is released"), actions=(Uncordon(node.name),))
    message = "released"
    if node is not None and node.cordoned:
        message = f"released; the node stays cordoned: {node.owner or 'another case holds it'}"
    after = moved(case, context.desired, case.stage, context.now, message)
    return Advance(case=after, actions=(RunHook("release"),))


def _take_out(case: CaseSpec, context: CaseContext[NodesSnapshot]) -> Advance:
    snapshot = context.snapshot
    # A node that waits for another tool is lost to that tool, as in the budget.
    held = {node.name for node in snapshot.nodes.values() if node.tool is not None}
    ours = sorted(context.releasing - held)
    before = next((each for each in ours if snapshot.shares_a_group(case.node, each)), None)
    if before is not None:
        return Advance(case=_with_message(case, f"waits for the release of {before}, which the budget still counts"))
    after = moved(case, context.desired, RemediationStage.DRAINING, context.now, "no new work is placed on it")
    return Advance(case=after, actions=(Cordon(case.node),))


def _evict(case: CaseSpec, context: CaseContext[NodesSnapshot], pods: tuple[GpuPod, ...]) -> Advance:
    snapshot, here = context.snapshot, [each for each in pods if not each.ending]
    refused = [f"{each}: {snapshot.blocked[each.uid]}" for each in here if each.uid in snapshot.blocked]
    moving = [str(each) for each in pods if each.uid not in snapshot.blocked]
    parts = [f"waits for the end of {_names(moving)}"] if moving else []
    message = "; ".join([*(f"eviction refused: {each}" for each in refused[:MAX_NAMES]), *parts])
    after = moved(case, context.desired, RemediationStage.MIGRATING, context.now, message)
    due = tuple(each for each in here if each.uid not in snapshot.waiting)
    actions: tuple[Action, ...] = (Evict(due),) if due else ()
    return Advance(case=after, actions=actions)


def _without_work(case: CaseSpec, context: CaseContext[NodesSnapshot], message: str, *actions: Action) -> Advance:
    after = moved(case, context.desired, RemediationStage.REPLACED, context.now, message)
    return Advance(case=after, actions=(RunHook("replace"), *actions))


def _with_message(case: CaseSpec, message: str) -> CaseSpec:
    return case.model_copy(update={"message": message[:1000]})


def _is_out(case: CaseSpec) -> bool:
    """Return whether the case has recorded a cordon that it has not undone; the record follows the writes."""
    done = [each.action for each in case.actions if each.action in {Cordon.name, Uncordon.name}]
    return done[-1:] == [Cordon.name]


def _names(pods: list[str]) -> str:
    more = len(pods) - MAX_NAMES
    return ", ".join(pods[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
