"""Runs a Ray cluster of several nodes on this machine: `python -m tests.testbed.ray_host PLAN READY`.

PLAN is a JSON file with the arguments of each node, the head first.  Once every node is alive, the process writes
READY, also as JSON: the cluster's addresses and the id of each node.  When PLAN is replaced, new nodes join, removed
ones end, and READY is written again.  The cluster lives until this process is killed; the caller must end its daemons
too (`guardian.py`).
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from ray.cluster_utils import Cluster

from tests.testbed.processes import LOOPBACK
from tests.testbed.waiting import PATIENCE_S

OBJECT_STORE_BYTES: Final = 80 * 2**20  # slightly above the minimum of Ray
POLL_S: Final = 0.2  # of the plan


class Nodes:
    """Holds the nodes of one cluster, all on loopback and on ports that each daemon chooses."""

    def __init__(self) -> None:
        self._cluster = Cluster(shutdown_at_exit=False)
        self._running: dict[str, Any] = {}

    def follow(self, plan: list[dict[str, Any]]) -> dict[str, Any]:
        """Run exactly the nodes of a plan; return the content of READY."""
        planned = {node["node_name"]: node for node in plan}
        for name in self._running.keys() - planned.keys():
            self._cluster.remove_node(self._running.pop(name))
        for name, node in planned.items():
            if name not in self._running:
                self._running[name] = self._added(node)
        self._cluster.wait_for_nodes(timeout=PATIENCE_S)
        return {
            "address": self._cluster.address,
            "dashboard_url": f"http://{self._cluster.webui_url}",
            "node_ids": {name: node.node_id for name, node in self._running.items()},
        }

    def _added(self, node: dict[str, Any]) -> Any:
        return self._cluster.add_node(
            wait=False,  # for all nodes together, with a longer timeout
            node_ip_address=LOOPBACK,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=not self._running,
            dashboard_host=LOOPBACK,
            dashboard_port=0,
            dashboard_agent_listen_port=0,
            no_monitor=True,  # the autoscaler: only the plan adds and removes nodes
            **node,
        )


def main(plan: Path, ready: Path) -> None:
    """Follow `plan`, and write `ready` after every change."""
    nodes, followed = Nodes(), ""
    while True:
        if (text := plan.read_text()) != followed:
            unfinished = ready.with_suffix(".part")
            unfinished.write_text(json.dumps(nodes.follow(json.loads(text))))
            unfinished.replace(ready)
            followed = text
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
