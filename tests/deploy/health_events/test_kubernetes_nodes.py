"""Nodes of Kubernetes: owners and conditions, by the labels, annotations and condition types of the contracts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.common.errors import ActuationError
from deploy.common.kubernetes_node_marks import SENTINEL_EVENT
from deploy.health_events.kubernetes_nodes import KubernetesNodes, observed
from fleet.stock.node_marks import DETECTOR_CONDITIONS, SENTINEL_CONDITIONS, SENTINEL_LABEL, SENTINEL_TAINTS

pytestmark = pytest.mark.anyio
CONTRACTS = Path(__file__).parents[4] / "shared" / "data" / "contracts"


def node(
    name: str = "n1",
    *,
    ready: str = "True",
    conditions: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    found = {"Ready": ready, "MemoryPressure": "False"} | dict(conditions or {})
    listed = [
        {"type": kind, "status": status, "lastTransitionTime": "2026-11-21T12:00:00Z", "message": f"about {kind}"}
        for kind, status in found.items()
    ]
    metadata = {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": listed}}


def event_of(*agents: str) -> dict[str, str]:
    events = {f"check-{number}": {"agent": agent, "isFatal": True} for number, agent in enumerate(agents)}
    return {SENTINEL_EVENT: json.dumps(events)}


def taint(key: str) -> list[dict[str, str]]:
    return [{"key": key, "value": "true", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("found", "available", "owner"),
    [
        (node(), True, None),
        (node(taints=taint("nvidia.com/gpu")), True, None),  # GPU nodes often have it for good
        (node(ready="Unknown"), False, None),
        (node(unschedulable=True), False, "cordoned in Kubernetes"),
        (node(taints=taint("ToBeDeletedByClusterAutoscaler")), False, "taint ToBeDeletedByClusterAutoscaler"),
        (node(taints=taint("nvidia.com/gpu-xid-error")), False, "NVSentinel (quarantined)"),
        (node(unschedulable=True, labels={SENTINEL_LABEL: "draining"}), False, "NVSentinel (draining)"),
        (node(unschedulable=True, annotations=event_of("gpu-health-monitor")), False, "NVSentinel (quarantined)"),
        (node(unschedulable=True, annotations=event_of("fleetwright")), False, None),
        (
            node(unschedulable=True, annotations=event_of("fleetwright", "syslog-health-monitor")),
            False,
            "NVSentinel (quarantined)",
        ),
        (node(unschedulable=True, annotations={SENTINEL_EVENT: "{"}), False, "NVSentinel (quarantined)"),
    ],
)
def test_an_owner_is_whoever_took_the_node_out_except_fleetwright(
    found: dict[str, Any], *, available: bool, owner: str | None
) -> None:
    seen = observed(found)
    assert (seen.available, seen.owner) == (available, owner)


def test_conditions_of_known_types_count_and_our_own_does_not() -> None:
    found = observed(
        node(
            conditions={
                "SysLogsXIDError": "True",
                "KernelDeadlock": "True",
                "ReadonlyFilesystem": "False",
                "FleetwrightNodeFault": "True",
                "MemoryPressure": "True",
                "GpuMemWatch": "Unknown",
            }
        )
    )
    assert [(each.source, each.kind, each.message) for each in found.conditions] == [
        ("nvsentinel", "SysLogsXIDError", "about SysLogsXIDError"),
        ("node-problem-detector", "KernelDeadlock", "about KernelDeadlock"),
    ]


@pytest.mark.skipif(not CONTRACTS.is_dir(), reason="the shared contracts are not present")
def test_the_known_names_are_those_of_the_contracts() -> None:
    conventions = json.loads((CONTRACTS / "nvsentinel" / "node-state-conventions.json").read_text())
    assert set(conventions["node_conditions"]["types"]) == SENTINEL_CONDITIONS
    assert (conventions["node_label"]["key"], SENTINEL_EVENT in conventions["annotations"]) == (SENTINEL_LABEL, True)
    taints = {each["key"] for each in conventions["taints"]["examples"]} | {conventions["taints"]["release_taint"]}
    assert taints == SENTINEL_TAINTS
    assert set(json.loads((CONTRACTS / "npd" / "conditions.json").read_text())) == DETECTOR_CONDITIONS


@dataclass
class Pages:
    """An API server with pages of nodes."""

    pages: list[list[dict[str, Any]]]
    queries: list[dict[str, str]] = field(default_factory=list)

    async def get(self, path: str, **query: str) -> Any:
        assert path == "/api/v1/nodes"
        self.queries.append(query)
        number = int(query.get("continue", "0"))
        following = {"continue": str(number + 1)} if number + 1 < len(self.pages) else {}
        return {"metadata": following, "items": self.pages[number]}

    async def patch(self, path: str, operations: Any) -> None:
        raise AssertionError(f"nothing is written, got {path}: {operations}")


async def test_all_pages_are_read_with_pools_and_failure_domains() -> None:
    labels = {"nvidia.com/gpu.product": "H100", "fleetwright.io/rack": "r1"}
    pages = Pages([[node("n1", labels=labels)], [node("n2", labels=labels | {"fleetwright.io/pool": "train"})]])
    found = await KubernetesNodes(kubernetes=pages).observe()
    assert [(name, each.pool, each.domains) for name, each in found.items()] == [
        ("n1", "H100", ("r1",)),
        ("n2", "train", ("r1",)),
    ]
    assert [each.get("continue") for each in pages.queries] == [None, "1"]


async def test_a_response_that_is_no_list_of_nodes_is_an_error() -> None:
    with pytest.raises(ActuationError, match="no list of nodes"):
        await KubernetesNodes(kubernetes=Pages([[{"kind": "Pod"}]])).observe()
