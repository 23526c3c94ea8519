"""The bodies of the writes to a node: absolute values, tested by the resource version.  Pure.

One merge patch sets or removes the annotation, the cordon and the taint together, so no reader observes our cordon
without the annotation that explains it.  The condition is a subresource and has a patch of its own.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from deploy.common.errors import OvertakenError
from deploy.common.kubernetes_client import FIELD_MANAGER
from deploy.common.kubernetes_node_marks import QUARANTINE, QuarantineMark
from deploy.common.text import one_line
from deploy.remediation.kubernetes_nodes.snapshot import KubernetesNode, taint_value
from fleet.stock.node_marks import OWN_CONDITION

NAMESPACE = "default"  # of events about objects without a namespace

Body = Mapping[str, Any]


def cordon_patch(node: KubernetesNode, case_id: str) -> Body | None:
    """Return the patch that marks the node for a case; None if it is marked."""
    was_ours = node.mark is not None and node.mark.cordoned
    mark = QuarantineMark(case=case_id, cordoned=was_ours or not node.cordoned)
    if node.mark == mark and node.cordoned and node.our_taints == [taint_value(case_id)]:
        return None
    ours = {"key": QUARANTINE, "value": taint_value(case_id), "effect": "NoSchedule"}
    return {
        "metadata": {"resourceVersion": node.resource_version, "annotations": {QUARANTINE: mark.text}},
        "spec": {"unschedulable": True, "taints": [*_foreign(node), ours]},
    }


def uncordon_patch(node: KubernetesNode, case_id: str) -> Body | None:
    """Return the patch that removes what the case set; None if nothing is left.

    Raise OvertakenError if another tool has meanwhile marked the node, and relies on the cordon.
    """
    is_ours = node.mark is not None and node.mark.case == case_id
    if not is_ours and taint_value(case_id) not in node.our_taints:
        return None
    spec: dict[str, Any] = {"taints": _foreign(node) or None}
    if is_ours and node.mark is not None and node.mark.cordoned:
        if node.tool is not None:
            raise OvertakenError(f"{node.name} stays cordoned: {node.tool}")
        spec["unschedulable"] = None
    annotations = {QUARANTINE: None} if is_ours else {}
    return {"metadata": {"resourceVersion": node.resource_version, "annotations": annotations}, "spec": spec}


def condition_patch(*, healthy: bool, message: str, now: datetime) -> Body:
    at = _timestamp(now)
    condition = {
        "type": OWN_CONDITION,
        "status": "True" if healthy else "False",
        "reason": "InService" if healthy else "Quarantined",
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }
    return {"status": {"conditions": [condition]}}


def eviction(*, namespace: str, name: str, uid: str) -> Body:
    """Return an eviction of this pod, not of a later one of the same name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }


def event(node: KubernetesNode, *, reason: str, message: str, key: str, now: datetime) -> Body:
    """Return an event of the node.  Its name follows from `key`, so a repetition is refused as a duplicate."""
    at, digest = _timestamp(now), hashlib.sha256(f"{node.uid} {reason} {key}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": NAMESPACE, "name": f"{node.name[:230]}.{digest}"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid},
        "reason": reason,
        "message": one_line(message),
        "type": "Normal" if reason == "Uncordoned" else "Warning",
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _foreign(node: KubernetesNode) -> list[Mapping[str, Any]]:
    return [each for each in node.taints if each["key"] != QUARANTINE]


def _timestamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
