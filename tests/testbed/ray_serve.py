"""Provides the `serve_app` fixture: the simulated inference service of `serve_apps.py` on the Ray cluster.

Everything uses Ray's REST interface, as a controller outside the cluster does: one PUT declares the application, which
lets an external scaler set its replica counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from tests.testbed.processes import LOOPBACK
from tests.testbed.ray_cluster import GPU_NODES, RayCluster
from tests.testbed.waiting import PATIENCE_S, wait_for

APPLICATIONS: Final = "/api/serve/applications/"


class ServeError(RuntimeError):
    """Carries the message of Ray Serve about a failed application."""


@dataclass(frozen=True, kw_only=True)
class Replica:
    """Is one replica that accepts requests."""

    replica_id: str
    node_id: str


@dataclass(frozen=True, kw_only=True)
class ServeApp:
    name: str
    url: str  # of the ingress
    pools: Mapping[str, str]  # deployment to accelerator type
    dashboard: httpx.Client

    def replicas(self, deployment: str) -> tuple[Replica, ...]:
        """Return the running replicas."""
        rows = self.status()["deployments"][deployment]["replicas"]
        return tuple(
            Replica(replica_id=row["replica_id"], node_id=row["node_id"]) for row in rows if row["state"] == "RUNNING"
        )

    def scale(self, deployment: str, *, replicas: int) -> None:
        """Request `replicas`; Serve scales asynchronously."""
        path = f"/api/v1/applications/{self.name}/deployments/{deployment}/scale"
        self.dashboard.post(path, json={"target_num_replicas": replicas}).raise_for_status()

    def wait_replicas(self, deployment: str, count: int) -> tuple[Replica, ...]:
        """Wait until exactly `count` replicas run."""
        return wait_for(
            lambda: self.replicas(deployment),
            lambda replicas: len(replicas) == count,
            what=f"{count} running replicas of {deployment}",
        )

    def status(self) -> dict[str, Any]:
        """Return Serve's status of the application."""
        applications: dict[str, dict[str, Any]] = (
            self.dashboard.get(APPLICATIONS).raise_for_status().json()["applications"]
        )
        return applications.get(self.name, {"status": "NOT_STARTED", "deployments": {}})


@contextmanager
def running_serve_app(
    cluster: RayCluster, *, pools: Mapping[str, str], name: str = "emulator", failing: Sequence[str] = ()
) -> Iterator[ServeApp]:
    """Deploy the service with a replica in each of `pools` (deployment to accelerator type); remove it at the end."""
    declared = {
        "name": name,
        "import_path": "tests.testbed.serve_apps:build",
        "external_scaler_enabled": True,
        "args": {"pools": dict(pools), "failing": list(failing)},
    }
    with httpx.Client(base_url=cluster.dashboard_url, timeout=PATIENCE_S, trust_env=False) as dashboard:
        app = ServeApp(name=name, url=f"http://{LOOPBACK}:{cluster.serve_port}/", pools=pools, dashboard=dashboard)
        _declare(dashboard, [declared], port=cluster.serve_port)
        try:
            wait_for(lambda: _settled(app), what=f"running application {name}")
            yield app
        finally:
            _declare(dashboard, [], port=cluster.serve_port)
            wait_for(
                lambda: app.status()["status"],
                lambda status: status == "NOT_STARTED",
                what=f"end of application {name}",
            )


@contextmanager
def declared_applications(cluster: RayCluster, applications: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Replace all applications of Serve by these and wait until they run; remove them at the end."""
    with httpx.Client(base_url=cluster.dashboard_url, timeout=PATIENCE_S, trust_env=False) as dashboard:

        def statuses() -> dict[str, tuple[str, str]]:
            rows = dashboard.get(APPLICATIONS).raise_for_status().json()["applications"]
            return {name: (row["status"], row["message"]) for name, row in rows.items()}

        def all_run() -> bool:
            found = statuses()
            if failed := [message for status, message in found.values() if status == "DEPLOY_FAILED"]:
                raise ServeError(failed[0])
            return all(found.get(app["name"], ("", ""))[0] == "RUNNING" for app in applications)

        _declare(dashboard, list(applications), port=cluster.serve_port)
        try:
            wait_for(all_run, what="running applications")
            yield
        finally:
            _declare(dashboard, [], port=cluster.serve_port)
            wait_for(statuses, lambda found: not found, what="end of the applications")


@pytest.fixture(scope="module")
def serve_app(ray_cluster: RayCluster) -> Iterator[ServeApp]:
    """Deploy the service with one deployment per GPU type, each named like the node that has it."""
    pools = {node.name: node.accelerator for node in GPU_NODES if node.accelerator is not None}
    with running_serve_app(ray_cluster, pools=pools) as app:
        yield app


def _declare(dashboard: httpx.Client, applications: list[dict[str, Any]], *, port: int) -> None:
    """Replace all applications of Serve.  A loaded head returns 5xx for a while after its start."""
    declaration = {
        "proxy_location": "HeadOnly",  # the nodes share one address, so only one of them can use the port
        "http_options": {"host": LOOPBACK, "port": port},
        "applications": applications,
    }
    wait_for(
        lambda: dashboard.put(APPLICATIONS, json=declaration),
        lambda response: response.is_success,
        what="acceptance by Ray Serve",
        interval_s=1.0,
    )


def _settled(app: ServeApp) -> bool:
    status = app.status()
    if status["status"] == "DEPLOY_FAILED":
        raise ServeError(status["message"])
    return bool(status["status"] == "RUNNING")
