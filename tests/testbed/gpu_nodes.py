"""Creates simulated nodes with GPUs: the scheduler fills them, kwok keeps them ready and runs their pods."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from tests.testbed.waiting import wait_for

GPU: Final = "nvidia.com/gpu"
POOL_LABEL: Final = "testbed.fleetwright/pool"
ACCELERATOR_LABEL: Final = "nvidia.com/gpu.product"  # the label of NVIDIA's GPU feature discovery
RACK_LABEL: Final = "cluster/rack"
POWER_DOMAIN_LABEL: Final = "cluster/power-domain"
AT_ONCE: Final = 8  # nodes created


@dataclass(frozen=True, kw_only=True)
class GpuNodes:
    """Holds the nodes of one test; only pods that select its pool should request GPUs."""

    core: Any  # kubernetes.client.CoreV1Api, which has no type information
    pool: str

    @property
    def selector(self) -> dict[str, str]:
        return {POOL_LABEL: self.pool}

    def add(
        self,
        count: int,
        *,
        accelerator: str = "NVIDIA-H100-80GB-HBM3",
        gpus: int = 8,
        rack: str = "r1",
        power_domain: str = "pd-r1",
    ) -> list[str]:
        """Add `count` equal nodes, wait until they are ready, and return their names."""
        labels = {ACCELERATOR_LABEL: accelerator, RACK_LABEL: rack, POWER_DOMAIN_LABEL: power_domain} | self.selector
        first = len(self.names())
        names = [f"{self.pool}-{number}" for number in range(first, first + count)]
        described = [_node(name, labels=labels | {"kubernetes.io/hostname": name}, gpus=gpus) for name in names]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(lambda node: self.core.create_node(node, _preload_content=False), described))
        wait_for(self._schedulable, lambda ready: ready.issuperset(names), what=f"ready nodes {names}")
        return names

    def names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self._list()]

    def remove_all(self) -> None:
        self.core.delete_collection_node(label_selector=f"{POOL_LABEL}={self.pool}")

    def _schedulable(self) -> set[str]:
        # A node keeps the taint not-ready for a moment after it has become ready.
        return {
            node["metadata"]["name"]
            for node in self._list()
            if node["status"].get("conditions") and not node["spec"].get("taints")
        }

    def _list(self) -> list[dict[str, Any]]:
        """Return the nodes as JSON: the client takes seconds to build a thousand objects."""
        selector = f"{POOL_LABEL}={self.pool}"
        found: list[dict[str, Any]] = json.loads(
            self.core.list_node(label_selector=selector, _preload_content=False).data
        )["items"]
        return found


def _node(name: str, *, labels: dict[str, str], gpus: int) -> dict[str, Any]:
    size = {"cpu": "192", "memory": "2Ti", "pods": "110", GPU: str(gpus)}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": size, "allocatable": size},
    }
