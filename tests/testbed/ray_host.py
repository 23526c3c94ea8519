"""Hold a Ray cluster of several nodes on this machine: `python -m tests.testbed.ray_host PLAN READY`.

PLAN is a JSON file with the arguments of each node, the head first. READY is written, also as JSON, once every node
is alive: where the cluster is and which id each node got. The cluster lives until this process is killed; whoever
starts it must end its daemons too (`guardian.py`).
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any, Final

from ray.cluster_utils import Cluster

from tests.testbed.processes import LOOPBACK
from tests.testbed.waiting import PATIENCE_S

OBJECT_STORE_BYTES: Final = 80 * 2**20  # a little above the least that Ray accepts


def start(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Start the nodes, all on loopback and on ports that each daemon finds for itself."""
    cluster = Cluster(shutdown_at_exit=False)
    started = {
        node["node_name"]: cluster.add_node(
            wait=False,  # for all of them together, below, with more patience
            node_ip_address=LOOPBACK,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=index == 0,
            dashboard_host=LOOPBACK,
            dashboard_port=0,
            dashboard_agent_listen_port=0,
            no_monitor=True,  # the autoscaler: no node comes or goes here
            **node,
        )
        for index, node in enumerate(nodes)
    }
    cluster.wait_for_nodes(timeout=PATIENCE_S)
    return {
        "address": cluster.address,
        "dashboard_url": f"http://{cluster.webui_url}",
        "node_ids": {name: node.node_id for name, node in started.items()},
    }


def main(plan: Path, ready: Path) -> None:
    """Start what `plan` says, tell by `ready`, then stay."""
    facts = start(json.loads(plan.read_text()))
    unfinished = ready.with_suffix(".part")
    unfinished.write_text(json.dumps(facts))
    unfinished.replace(ready)
    signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
