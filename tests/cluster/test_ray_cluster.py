"""Tests the Ray cluster of the tests: labelled nodes, a running application, no process left."""

import os
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray

from tests.testbed.nested import run_pytest
from tests.testbed.proc import descendants, listening_on, running_with_variable
from tests.testbed.processes import ProcessError
from tests.testbed.ray_cluster import GPU_NODES, HEAD, RayCluster, RayNode, running_ray_cluster
from tests.testbed.ray_serve import ServeApp
from tests.testbed.soak import long_form_only
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.ray

MARK = "FLEETWRIGHT_TEST_MARK"
ENDLESS = f'{sys.executable} -c "import signal; signal.pause()"'
PLUGINS = ("tests.testbed.requirements", "tests.testbed.ray_cluster")


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Set a value in the environment of every process that this test starts."""
    value = secrets.token_hex()
    monkeypatch.setenv(MARK, value)
    return value


@pytest.fixture
def driver(ray_cluster: RayCluster) -> Iterator[None]:
    """Join the cluster as a driver."""
    ray.init(address=ray_cluster.address, log_to_driver=False)
    yield
    ray.shutdown()


def test_the_nodes_have_gpus_and_fleet_labels(ray_cluster: RayCluster) -> None:
    response = httpx.get(f"{ray_cluster.dashboard_url}/api/v0/nodes", params={"detail": "1"}, trust_env=False)
    rows: dict[str, dict[str, Any]] = {row["node_id"]: row for row in response.json()["data"]["result"]["result"]}
    assert set(rows) == set(ray_cluster.node_ids.values())
    for node in GPU_NODES:
        row = rows[ray_cluster.node_ids[node.name]]
        assert row["state"] == "ALIVE"
        assert row["node_name"] == node.name
        assert row["resources_total"]["GPU"] == 8
        assert row["resources_total"][f"accelerator_type:{node.accelerator}"] == 1
        assert row["labels"]["ray.io/accelerator-type"] == node.accelerator
        assert row["labels"]["fleetwright.io/rack"] == node.rack
        assert row["labels"]["fleetwright.io/power-domain"] == node.power_domain
    head = rows[ray_cluster.node_ids[HEAD.name]]
    assert head["is_head_node"]
    assert "GPU" not in head["resources_total"]


def test_the_fleet_spans_racks_and_power_domains() -> None:
    assert len({node.rack for node in GPU_NODES}) == 3
    assert 1 < len({node.power_domain for node in GPU_NODES}) < 3


def test_the_cluster_listens_on_loopback_only(ray_cluster: RayCluster) -> None:
    addresses = listening_on(descendants(ray_cluster.guardian_pid))
    assert addresses
    assert all(address.is_loopback for address in addresses)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("node", GPU_NODES, ids=lambda node: node.name)
def test_a_driver_in_the_test_run_schedules_tasks_by_label(node: RayNode, ray_cluster: RayCluster) -> None:
    labels = {"ray.io/accelerator-type": node.accelerator, "fleetwright.io/rack": node.rack}
    where = ray.remote(lambda: ray.get_runtime_context().get_node_id()).options(num_gpus=8, label_selector=labels)
    assert ray.get(where.remote(), timeout=120) == ray_cluster.node_ids[node.name]


def test_each_pool_of_the_application_runs_on_the_node_with_its_gpus(
    serve_app: ServeApp, ray_cluster: RayCluster
) -> None:
    for pool in serve_app.pools:
        (replica,) = serve_app.wait_replicas(pool, 1)
        assert replica.node_id == ray_cluster.node_ids[pool]
        response = httpx.get(serve_app.url, params={"pool": pool}, trust_env=False, timeout=60).json()
        assert response == {"pool": pool, "replica_id": replica.replica_id, "node_id": replica.node_id}


def test_the_application_refuses_an_unknown_pool(serve_app: ServeApp) -> None:
    response = httpx.get(serve_app.url, params={"pool": "b200"}, trust_env=False, timeout=60)
    assert response.status_code == 422
    assert response.json() == {"detail": "pool must be one of h100, a100, l4"}


def test_an_external_scaler_sets_the_replicas_of_one_pool(serve_app: ServeApp, ray_cluster: RayCluster) -> None:
    (first,) = serve_app.wait_replicas("a100", 1)
    serve_app.scale("a100", replicas=2)
    scaled = serve_app.wait_replicas("a100", 2)
    assert first in scaled
    assert {replica.node_id for replica in scaled} == {ray_cluster.node_ids["a100"]}
    assert [len(serve_app.replicas(pool)) for pool in ("h100", "l4")] == [1, 1]
    serve_app.scale("a100", replicas=1)
    serve_app.wait_replicas("a100", 1)


def test_a_node_that_cannot_start_fails_with_the_message_of_ray_and_leaves_no_process(
    mark: str, tmp_path: Path
) -> None:
    impossible = RayNode(name="impossible", gpus=-1, rack="rack-9", power_domain="pdu-z")
    with pytest.raises(ProcessError, match="ended with status 1"), running_ray_cluster([impossible], log_dir=tmp_path):
        pytest.fail("it started")
    assert running_with_variable(MARK, mark) == []


def test_no_process_or_file_survives_the_cluster(mark: str, tmp_path: Path) -> None:
    with running_ray_cluster([], log_dir=tmp_path) as cluster:
        cluster.start_job(ENDLESS)
        groups = {os.getpgid(pid) for pid in running_with_variable(MARK, mark)}
        assert len(groups) > 1  # the processes of the job lead their own groups
        assert cluster.temp_dir.exists()
    assert running_with_variable(MARK, mark) == []
    assert not cluster.temp_dir.exists()


@long_form_only
def test_no_process_or_file_survives_a_killed_test_run(mark: str, tmp_path: Path) -> None:
    done = run_pytest(
        f"""
        import os, signal
        from pathlib import Path
        from tests.testbed.ray_cluster import running_ray_cluster

        def test_killed(tmp_path):
            with running_ray_cluster([], log_dir=tmp_path) as cluster:
                cluster.start_job({ENDLESS!r})
                Path("temp_dir").write_text(str(cluster.temp_dir))
                os.kill(os.getpid(), signal.SIGKILL)
        """,
        folder=tmp_path,
        plugins=PLUGINS,
    )
    assert done.returncode == -signal.SIGKILL
    wait_for(lambda: running_with_variable(MARK, mark), lambda left: not left, what="end of every process")
    assert not Path((tmp_path / "temp_dir").read_text()).exists()


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("ray", "1 error")])
def test_without_ray_the_fixture_reports_the_reason(required: str, outcome: str, tmp_path: Path) -> None:
    done = run_pytest(
        """
        import sys

        sys.modules["ray"] = None  # as if it were not installed

        def test_needs_it(ray_cluster):
            pass
        """,
        folder=tmp_path,
        plugins=PLUGINS,
        environment={"FLEETWRIGHT_REQUIRE": required},
    )
    assert outcome in done.stdout
    assert "the package ray[default,serve] is not installed" in done.stdout
