"""Tests the controller as a detached actor of a real Ray cluster: start, restart, upgrade, clean stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deploy.ray_actor.cluster import RayCluster as Joined
from deploy.ray_actor.lifecycle import Lifecycle, StartFailedError
from deploy.ray_actor.messages import (
    ControllerActorSettings,
    ControllerName,
    GpuSource,
    NodeActorSettings,
    NodeReport,
    controllers_among,
    node_actors_among,
)
from tests.testbed.processes import LOOPBACK, free_ports
from tests.testbed.ray_cluster import RayCluster, RayNode, check_machine, running_ray_cluster
from tests.testbed.ray_controllers import NAME, conducting, joined_cluster, leader
from tests.testbed.requirements import skipping_where_unavailable
from tests.testbed.server import ADMIN_TOKEN, Server, StartServer
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.ray

LEADING = "fleetwright_controller_is_leader 1.0"
EXTRA = RayNode(name="extra", cpus=1, gpus=2, accelerator="L4", rack="rack-9", power_domain="pdu-z")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Run a separate cluster, because nodes join and leave here."""
    with skipping_where_unavailable("ray", what="Ray"):
        check_machine()
    with running_ray_cluster([], log_dir=tmp_path_factory.mktemp("ray")) as cluster:
        yield cluster


@pytest.fixture
def joined(cluster: RayCluster) -> Iterator[Joined]:
    """Join the cluster as a user of the commands does."""
    with joined_cluster(cluster.address) as joined:
        yield joined


@pytest.fixture
def conductor(joined: Joined) -> Iterator[Lifecycle]:
    with conducting(joined) as conductor:
        yield conductor


@pytest.fixture
def server(start_server: StartServer, sqlite_url: str) -> Server:
    """Run a service without a controller."""
    return start_server(sqlite_url, "--no-controller")


@pytest.fixture
def settings(server: Server, tmp_path: Path) -> ControllerActorSettings:
    token_file = tmp_path / "for-the-actor"
    token_file.write_text(ADMIN_TOKEN)
    watch = NodeActorSettings(gpus=GpuSource.SIMULATED)
    (port,) = free_ports(1)
    return ControllerActorSettings(url=server.url, token_file=token_file, period_s=0.5, metrics_port=port, watch=watch)


def node_report(conductor: Lifecycle, name: str) -> NodeReport | None:
    """Return the report of a node's actor; None without one."""
    reports = [one.report for one in conductor.listing() if one.report is not None]
    found = [each for report in reports for each in report.node_actors if each.node_name == name and each.responds]
    return found[0] if found else None


def test_the_controller_starts_once_and_restarts_when_its_process_is_killed(
    conductor: Lifecycle, settings: ControllerActorSettings, server: Server
) -> None:
    settings = settings.model_copy(update={"lease_s": 6.0})  # the killed controller does not release its lease
    assert conductor.start(NAME, settings).changed
    one, first = leader(conductor, lambda report: report.reconciles > 0)
    assert (one.name, one.node_name) == (ControllerName(NAME, 1), "head")
    assert not conductor.start(NAME, settings).changed

    os.kill(first.pid, signal.SIGKILL)
    _one, again = leader(conductor, lambda report: report.pid != first.pid and report.reconciles > 0)

    assert again.restarted
    with server.client() as client:
        assert client.get_lease("controller").document.holder == again.holder


def test_each_node_has_a_node_actor_until_it_is_drained(
    conductor: Lifecycle, joined: Joined, settings: ControllerActorSettings, cluster: RayCluster
) -> None:
    conductor.start(NAME, settings)
    node_id = cluster.change_nodes([EXTRA])["extra"]
    report_of_extra = wait_for(
        lambda: node_report(conductor, "extra"), lambda one: one and one.gpus, what="GPUs of the new node"
    )
    assert report_of_extra is not None
    assert report_of_extra.gpus is not None
    assert [gpu["name"] for gpu in report_of_extra.gpus["gpus"]] == ["L4", "L4"]
    assert report_of_extra.gpus["act"] == "observe"

    stopped_one(conductor, node_id)

    drain(cluster, node_id)
    wait_for(lambda: nodes_with_actor(joined), lambda nodes: node_id not in nodes, what="end of the node actor")
    cluster.change_nodes([])
    wait_for(lambda: [node.name for node in joined.nodes()], lambda names: names == ["head"], what="end of the node")
    killed = wait_for(lambda: node_report(conductor, "head"), what="report of the node actor of the head")
    assert killed is not None
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    wait_for(
        lambda: node_report(conductor, "head"), lambda one: one and one.pid != killed.pid, what="a restarted node actor"
    )


def test_an_upgrade_hands_over_or_changes_nothing_and_a_stop_removes_all_actors(
    conductor: Lifecycle, joined: Joined, settings: ControllerActorSettings, server: Server
) -> None:
    conductor.start(NAME, settings)
    leader(conductor)

    assert conductor.upgrade(NAME, {"observe_only": True}).name == ControllerName(NAME, 2)
    second, after = leader(conductor)
    wait_for(
        lambda: counts_of(settings.metrics_port), lambda text: LEADING in text, what="metrics of the new controller"
    )
    assert ControllerActorSettings.model_validate(after.settings) == settings.model_copy(update={"observe_only": True})

    with pytest.raises(StartFailedError, match=r"controller\.g3 does not start: token file /nowhere: No such file"):
        conductor.upgrade(NAME, {"token_file": "/nowhere"})
    one, kept = leader(conductor)
    assert (one.name, kept.pid) == (second.name, after.pid)

    assert conductor.stop(NAME) == [ControllerName(NAME, 2)]
    assert controllers_among(joined.names()) == []
    assert node_actors_among(joined.names()) == []
    with server.client() as client:
        assert client.get_lease("controller").document.holder is None
    assert conductor.stop(NAME) == []


def counts_of(port: int) -> str:
    try:
        return httpx.get(f"http://{LOOPBACK}:{port}/metrics", trust_env=False).text
    except httpx.TransportError:
        return ""


def stopped_one(conductor: Lifecycle, node_id: str) -> None:
    """Ray still reports a stopped worker as alive; the node actor reports it as stopped."""
    sleeper = ray.remote(num_cpus=0)(Sleeper).options(
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)
    )
    actor = sleeper.remote()
    pid = ray.get(actor.pid.remote(), timeout=PATIENCE_S)
    os.kill(pid, signal.SIGSTOP)
    try:
        report_of_node = wait_for(
            lambda: node_report(conductor, "extra"),
            lambda one: one and one.stopped,
            what="report of the stopped worker",
        )
    finally:
        os.kill(pid, signal.SIGCONT)
        ray.kill(actor)
    assert report_of_node is not None
    assert [(worker.pid, worker.name) for worker in report_of_node.workers if worker.state == "T"] == [(pid, "Sleeper")]


class Sleeper:
    """Is a worker of another user of the cluster."""

    def pid(self) -> int:
        return os.getpid()


def drain(cluster: RayCluster, node_id: str) -> None:
    ray_command = Path(sys.executable).with_name("ray")  # without an activated environment the program is beside Python
    argv: list[Any] = [ray_command, "drain-node", "--address", cluster.address, "--node-id", node_id]
    argv += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a test", "--deadline-remaining-seconds"]
    done = subprocess.run([*argv, "600"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def nodes_with_actor(joined: Joined) -> set[str]:
    return {each.node_id for each in node_actors_among(joined.names())}
