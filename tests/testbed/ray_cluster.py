"""Provides the `ray_cluster` fixture: a real Ray cluster of a head and three nodes, with simulated GPUs.

`ray.cluster_utils.Cluster` starts a real control service and dashboard, and a real raylet per node.  It runs in its own
process (`ray_host.py`) under a guardian, because Ray's daemons survive the driver that started them.  Tests use the
REST interface of the dashboard, or join as a driver with `ray.init(address=ray_cluster.address)`.
"""

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.testbed.processes import Process, free_ports
from tests.testbed.requirements import UnavailableError, skipping_where_unavailable
from tests.testbed.waiting import PATIENCE_S, wait_for

# For every process of the cluster, and for drivers in the test run itself.
RAY_SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:1/",  # unused: Ray reports even that reports are disabled
    # Lets Ray use loopback as this machine's address.  Otherwise Ray expects daemons at another address of the machine,
    # where they would serve everybody on the network without authentication.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
BOOTSTRAP_CONFIG: Final = "ray_bootstrap_config.yaml"  # without it at home Ray queries every cloud's metadata server
START_S: Final = 2 * PATIENCE_S  # Ray starts five daemons one after the other
STOP_S: Final = 30.0
PLAN: Final = "plan.json"
READY: Final = "ready.json"


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """Describes the simulated hardware of a node."""

    name: str
    cpus: int = 4
    gpus: int = 0
    accelerator: str | None = None  # as Ray itself names the type on a node that has it
    rack: str
    power_domain: str
    environment: Mapping[str, str] = field(default_factory=dict)  # besides that of the cluster

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Cluster.add_node`, with the labels that Ray gives to such GPUs."""
        labels = {"fleetwright.io/rack": self.rack, "fleetwright.io/power-domain": self.power_domain}
        resources: dict[str, float] = {}
        if self.accelerator is not None:
            labels["ray.io/accelerator-type"] = self.accelerator
            resources[f"accelerator_type:{self.accelerator}"] = 1.0
        return {
            "node_name": self.name,
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "resources": resources,
            "labels": labels,
            "env_vars": dict(self.environment),
        }


HEAD: Final = RayNode(name="head", rack="rack-0", power_domain="pdu-a")
GPU_NODES: Final = (
    RayNode(name="h100", gpus=8, accelerator="H100", rack="rack-1", power_domain="pdu-a"),
    RayNode(name="a100", gpus=8, accelerator="A100", rack="rack-2", power_domain="pdu-b"),
    RayNode(name="l4", gpus=8, accelerator="L4", rack="rack-3", power_domain="pdu-b"),
)


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """Holds the addresses of a running cluster, and the Ray node id of each node."""

    address: str
    dashboard_url: str
    serve_port: int  # free for the HTTP proxy of Ray Serve, which can't move once Serve has started
    node_ids: Mapping[str, str]
    temp_dir: Path  # with the logs of all daemons, and their addresses for Prometheus
    guardian_pid: int  # every process of the cluster is below it

    def start_job(self, entrypoint: str) -> None:
        """Submit a shell command as a Ray job and wait until it runs."""
        with httpx.Client(base_url=self.dashboard_url, timeout=PATIENCE_S, trust_env=False) as dashboard:
            response = dashboard.post("/api/jobs/", json={"entrypoint": entrypoint}).raise_for_status()
            path = f"/api/jobs/{response.json()['submission_id']}"
            wait_for(
                lambda: dashboard.get(path).json()["status"], lambda status: status == "RUNNING", what="running job"
            )

    def change_nodes(self, gpu_nodes: Sequence[RayNode]) -> Mapping[str, str]:
        """Add the missing nodes and stop all others except the head; return the ids of all."""
        plan, ready = (self.temp_dir.parent / name for name in (PLAN, READY))
        head, *_others = json.loads(plan.read_text())
        unfinished = plan.with_suffix(".part")
        unfinished.write_text(json.dumps([head, *(node.arguments() for node in gpu_nodes)]))
        unfinished.replace(plan)
        names = {head["node_name"], *(node.name for node in gpu_nodes)}
        facts = wait_for(
            lambda: json.loads(ready.read_text()),
            lambda facts: set(facts["node_ids"]) == names,
            what="the planned nodes",
        )
        node_ids: dict[str, str] = facts["node_ids"]
        return node_ids


@contextmanager
def running_ray_cluster(
    gpu_nodes: Sequence[RayNode],
    *,
    log_dir: Path,
    head_cpus: int = HEAD.cpus,
    environment: Mapping[str, str] | None = None,
) -> Iterator[RayCluster]:
    """Start a head and `gpu_nodes`; at the end only the start-up log of the cluster is left."""
    scratch = Path(tempfile.mkdtemp(prefix="fw-ray-"))  # short: Ray keeps sockets below it; their paths have a limit
    (scratch / BOOTSTRAP_CONFIG).write_text("{}")
    plan, ready = scratch / PLAN, scratch / READY
    plan.write_text(json.dumps([node.arguments() for node in (replace(HEAD, cpus=head_cpus), *gpu_nodes)]))
    metrics_port, serve_port = free_ports(2)
    host = [sys.executable, "-m", "tests.testbed.ray_host", str(plan), str(ready)]
    guardian = Process.start(
        [sys.executable, "-m", "tests.testbed.guardian", str(scratch), *host],
        name="ray",
        log_dir=log_dir,
        env=_environment(scratch=scratch, metrics_port=metrics_port) | dict(environment or {}),
    )
    try:
        guardian.wait_ready(ready.exists, timeout_s=START_S)
        yield RayCluster(
            serve_port=serve_port,
            temp_dir=scratch / "ray",
            guardian_pid=guardian.pid,
            **json.loads(ready.read_text()),
        )
    finally:
        guardian.stop(grace_s=STOP_S)


def check_machine() -> None:
    """Raise the reason why a machine cannot run a Ray cluster."""
    if sys.platform != "linux":
        raise UnavailableError(f"the test bed can control its processes on Linux only, not on {sys.platform}")
    if importlib.util.find_spec("ray") is None:
        raise UnavailableError("the package ray[default,serve] is not installed")


def pytest_configure() -> None:
    """Set the variables that Ray reads on import, so that `ray.init` in the test run finds the cluster."""
    os.environ.update(RAY_SETTINGS)


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Run the head, and one node each with 8 H100, A100 and L4."""
    with skipping_where_unavailable("ray", what="Ray"):
        check_machine()
    with running_ray_cluster(GPU_NODES, log_dir=tmp_path_factory.mktemp("ray")) as cluster:
        yield cluster


def _environment(*, scratch: Path, metrics_port: int) -> dict[str, str]:
    """Return the environment of the cluster: long timeouts, and isolation from any other Ray on this machine."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    patience = str(int(PATIENCE_S))
    return (
        inherited
        | RAY_SETTINGS
        | {
            "HOME": str(scratch),
            "RAY_TMPDIR": str(scratch),
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": patience,
            "RAY_gcs_server_port_wait_time_s": patience,
            "DASHBOARD_METRIC_PORT": str(metrics_port),  # else a fixed port
        }
    )
