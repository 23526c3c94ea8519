"""The nodes of a Kubernetes cluster: who has cordoned them, and the conditions of NVSentinel and node-problem-detector.

Node conditions have no common polarity, so only known types count.  A cordon by NVSentinel because of our own events is
not another owner.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.common.errors import ActuationError
from deploy.common.kubernetes_client import Kubernetes
from deploy.health_events.nvsentinel import AGENT
from deploy.health_events.outlet import NodeCondition, ObservedNode
from deploy.remediation.cluster_interface import POOL_LABELS, domains_of
from fleet.stock.node_marks import (
    AUTOSCALER_TAINTS,
    DETECTOR_CONDITIONS,
    SENTINEL_CONDITIONS,
    SENTINEL_LABEL,
    SENTINEL_TAINTS,
)
from fleet.topology import LabelNames
from fleet.topology.labels import first_set

PAGE: Final = 500
MAX_PAGES: Final = 200
SENTINEL_EVENT: Final = "quarantineHealthEvent"
_POOLS: Final = (*POOL_LABELS, *LabelNames().gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNodes:
    """Observes the nodes by the API server; nothing is written there."""

    kubernetes: Kubernetes
    name: str = field(default="kubernetes", init=False)

    async def observe(self) -> Mapping[str, ObservedNode]:
        found: dict[str, ObservedNode] = {}
        following: dict[str, str] = {}
        for _page in range(MAX_PAGES):
            listed = await self.kubernetes.get("/api/v1/nodes", limit=str(PAGE), **following)
            try:
                found |= {node["metadata"]["name"]: observed(node) for node in listed["items"]}
                after = listed["metadata"].get("continue")
            except (KeyError, TypeError, AttributeError) as error:
                raise ActuationError(f"/api/v1/nodes is no list of nodes: {error!r}") from error
            if not after:
                return found
            following = {"continue": after}
        raise ActuationError(f"/api/v1/nodes has more than {PAGE * MAX_PAGES:,} nodes")


def observed(node: Mapping[str, Any]) -> ObservedNode:
    labels = node["metadata"].get("labels") or {}
    conditions = (node.get("status") or {}).get("conditions") or []
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    is_cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    taints = {each["key"] for each in (node.get("spec") or {}).get("taints") or []}
    return ObservedNode(
        name=node["metadata"]["name"],
        pool=first_set(labels, _POOLS) or "default",
        domains=domains_of(labels),
        available=is_ready and not is_cordoned and not taints & (SENTINEL_TAINTS | AUTOSCALER_TAINTS),
        owner=_owner(node, labels, taints, is_cordoned=is_cordoned),
        conditions=tuple(_conditions(conditions)),
    )


def _owner(node: Mapping[str, Any], labels: Mapping[str, str], taints: set[str], *, is_cordoned: bool) -> str | None:
    annotation = (node["metadata"].get("annotations") or {}).get(SENTINEL_EVENT)
    if annotation or labels.get(SENTINEL_LABEL) or taints & SENTINEL_TAINTS:
        return None if _agents(annotation) == {AGENT} else f"NVSentinel ({labels.get(SENTINEL_LABEL) or 'quarantined'})"
    if taints & AUTOSCALER_TAINTS:
        return f"taint {min(taints & AUTOSCALER_TAINTS)}"
    return "cordoned in Kubernetes" if is_cordoned else None


def _agents(annotation: str | None) -> set[str]:
    """Return the monitors whose events made NVSentinel quarantine the node."""
    try:
        return set(_values_of("agent", json.loads(annotation or "null")))
    except ValueError:
        return set()


def _values_of(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name == key and isinstance(each, str):
                yield each
            yield from _values_of(key, each)
    elif isinstance(value, list):
        for each in value:
            yield from _values_of(key, each)


def _conditions(conditions: list[Mapping[str, Any]]) -> Iterator[NodeCondition]:
    for each in conditions:
        known = {"nvsentinel": SENTINEL_CONDITIONS, "node-problem-detector": DETECTOR_CONDITIONS}
        for source, kinds in known.items():
            if each["type"] in kinds and each["status"] == "True":
                yield NodeCondition(
                    source=source,
                    kind=each["type"],
                    since=each.get("lastTransitionTime") or "",
                    message=each.get("message") or each.get("reason") or "",
                )
