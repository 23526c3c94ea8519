"""The nodes of a Kubernetes cluster: who has cordoned them, and the conditions that other tools report."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.common.errors import ActuationError
from deploy.common.kubernetes_client import Kubernetes, listed
from deploy.common.kubernetes_node_marks import faults_of, is_available, labels_of, owner_of
from deploy.common.node_labels import KUBERNETES_POOL_LABELS, domains_of
from deploy.health_events.outlet import NodeCondition, ObservedNode
from fleet.topology.labels import first_set

NODES: Final = "/api/v1/nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNodes:
    """Observes the nodes by the API server; nothing is written there."""

    kubernetes: Kubernetes
    name: str = field(default="kubernetes", init=False)

    async def observe(self) -> Mapping[str, ObservedNode]:
        found: dict[str, ObservedNode] = {}
        async for node in listed(self.kubernetes, NODES):
            try:
                found[node["metadata"]["name"]] = observed(node)
            except (KeyError, TypeError, AttributeError) as error:
                raise ActuationError(f"{NODES} is no list of nodes: {error!r}") from error
        return found


def observed(node: Mapping[str, Any]) -> ObservedNode:
    labels = labels_of(node)
    return ObservedNode(
        name=node["metadata"]["name"],
        pool=first_set(labels, KUBERNETES_POOL_LABELS) or "default",
        domains=domains_of(labels),
        available=is_available(node),
        owner=owner_of(node),
        conditions=tuple(_conditions(node)),
    )


def _conditions(node: Mapping[str, Any]) -> Iterator[NodeCondition]:
    for source, each in faults_of(node):
        yield NodeCondition(
            source=source,
            kind=each["type"],
            since=each.get("lastTransitionTime") or "",
            message=each.get("message") or each.get("reason") or "",
        )
