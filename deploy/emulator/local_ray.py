"""Runs a Ray cluster on this machine as long as the parent process lives: `python -m deploy.emulator.local_ray`.

    python -m deploy.emulator.local_ray NODES READY < pipe

NODES is a JSON file with the arguments of each node, the head first.  READY is written as JSON once every node is
alive.  When the pipe ends, because it was closed or its writer is gone, this process ends all daemons of the cluster
and removes the folder of the two files.  Everything listens on loopback only.
"""

import ctypes
import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
START_S = 180.0
OBJECT_STORE_BYTES = 80 * 2**20  # a little above Ray's minimum
PR_SET_CHILD_SUBREAPER = 36
BOOTSTRAP_CONFIG = (
    "ray_bootstrap_config.yaml"  # without this file in the home folder Ray queries the metadata service of every cloud
)
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:1/",  # Ray would still report there that reports are off
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes Ray accept loopback as the node's address
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(int(START_S)),
    "RAY_gcs_server_port_wait_time_s": str(int(START_S)),
}


def environment(scratch: Path, *, metrics_port: int) -> dict[str, str]:
    """Return the environment of the cluster's process, independent of any other Ray on this machine."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, inherited.get("PYTHONPATH")]))
    own = dict.fromkeys(("HOME", "TMPDIR", "RAY_TMPDIR"), str(scratch)) | {"DASHBOARD_METRIC_PORT": str(metrics_port)}
    return inherited | SETTINGS | own | {"PYTHONPATH": path}


def main(nodes: Path, ready: Path) -> None:
    """Start the cluster, write READY, wait for the end of the pipe, clean up."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # adopt orphaned processes
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # only the end of the pipe ends this process
    try:
        unfinished = ready.with_suffix(".part")
        unfinished.write_text(json.dumps(_start(json.loads(nodes.read_text()))))
        unfinished.replace(ready)
        sys.stdin.buffer.read()
    finally:
        _end_all()
        shutil.rmtree(nodes.parent, ignore_errors=True)


def _start(nodes: list[dict[str, Any]]) -> dict[str, str]:
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - after the environment is known to be ours

    cluster = Cluster(shutdown_at_exit=False)
    for index, node in enumerate(nodes):
        cluster.add_node(
            wait=False,
            node_ip_address=LOOPBACK,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=index == 0,
            dashboard_host=LOOPBACK,
            dashboard_port=0,
            dashboard_agent_listen_port=0,
            no_monitor=True,
            **node,
        )
    cluster.wait_for_nodes(timeout=START_S)
    return {"address": cluster.address, "dashboard_url": f"http://{cluster.webui_url}"}


def _end_all() -> None:
    while children := _children():
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task")
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
