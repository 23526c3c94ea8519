"""The watcher of one node, in this process: what it is told to look at, and what it says."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.node_agent.gpu.errors import GpuError
from deploy.ray_actor.messages import GpuSource, NodeActorConfig, NodeActorSettings, NodeReport
from deploy.ray_actor.node_actor import NodeActor, gpus_of
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.waiting import wait_for


@pytest.fixture
def watcher() -> Iterator[NodeActor]:
    watcher = NodeActor("a0")
    yield watcher
    watcher.close()


def order(*, index: int = 0, peers: dict[str, int] | None = None, boards: int = 0, **settings: Any) -> dict[str, Any]:
    watch = NodeActorSettings.model_validate({"hz": 50.0} | settings)
    told = NodeActorConfig(
        index=index, node_name="gpu-1", peers=peers or {}, gpus=boards, accelerator="H100", settings=watch
    )
    return told.model_dump(mode="json")


def tended(watcher: NodeActor, told: dict[str, Any]) -> NodeReport:
    return NodeReport.model_validate(watcher.tend(told))


def test_it_says_where_it_is_and_looks_on(watcher: NodeActor) -> None:
    told = order(index=4)
    first = tended(watcher, told)
    assert (first.node_id, first.node_name, first.index, first.pid) == ("a0", "gpu-1", 4, os.getpid())
    wait_for(lambda: tended(watcher, told).looks, lambda looks: looks > first.looks, what="looks")
    assert tended(watcher, told).message is None


def test_it_records_into_a_folder(watcher: NodeActor, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    told = order(index=1, folder=str(folder), peers={"127.0.1.1": 0, "127.0.1.2": 1}, ranks_per_node=2)
    report = tended(watcher, told)
    assert report.peers == 2
    wait_for(lambda: tended(watcher, told).observations, what="observations of sockets")
    watcher.close()
    assert json.loads((folder / "run.json").read_text())["rank_node"] == [0, 0, 1, 1]
    wait_for(lambda: [path.name for path in folder.iterdir() if path.name != "run.json"], what="lines")


def test_another_order_begins_anew_and_the_same_does_not(watcher: NodeActor, tmp_path: Path) -> None:
    told = order()
    tended(watcher, told)
    wait_for(lambda: tended(watcher, told).looks, lambda looks: looks > 2, what="looks")
    folder = tmp_path / "later"
    tended(watcher, order(folder=str(folder)))
    assert (folder / "run.json").exists()


def test_gpus_are_looked_at_and_never_written_to(watcher: NodeActor) -> None:
    told = order(boards=2, gpus=GpuSource.SIMULATED)
    report = wait_for(
        lambda: tended(watcher, told),
        lambda report: report.gpus and all(gpu["power_w"] for gpu in report.gpus["gpus"]),
        what="watts",
    )
    assert report.gpus is not None
    assert (report.gpus["act"], report.gpus["driver"]) == ("observe", "simulated")
    assert [gpu["name"] for gpu in report.gpus["gpus"]] == ["H100-SXM"] * 2
    assert tended(watcher, order(boards=2, gpus=GpuSource.NONE)).gpus is None


def test_what_cannot_be_looked_at_is_said_and_the_rest_is_looked_at(watcher: NodeActor, tmp_path: Path) -> None:
    """There is no driver of GPUs here, and the folder is a file."""
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    told = order(folder=str(in_the_way / "below"))
    assert "cannot record" in (tended(watcher, told).message or "")
    fine = order()
    wait_for(lambda: tended(watcher, fine).looks, what="looks")
    assert tended(watcher, fine).message is None


def test_gpus_that_no_driver_answers_for_are_told_of() -> None:
    def silent(driver: str, _options: object) -> Any:
        raise GpuError(f"no library of {driver}")

    told = NodeActorConfig(index=0, node_name="n", gpus=8, settings=NodeActorSettings())
    with pytest.raises(GpuError, match="nvml: no library of nvml; amd: no library of amd"):
        gpus_of(told, opened=silent)
    assert gpus_of(told.model_copy(update={"gpus": 0}), opened=silent) is None
    assert gpus_of(told.model_copy(update={"settings": NodeActorSettings(gpus=GpuSource.NONE)}), opened=silent) is None


def test_a_board_that_no_catalogue_knows_is_simulated_as_another() -> None:
    told = NodeActorConfig(
        index=0, node_name="n", gpus=1, accelerator="X9000", settings=NodeActorSettings(gpus=GpuSource.SIMULATED)
    )
    node = gpus_of(told)
    assert node is not None
    assert [identity.name for identity in node.cap_controller.gpus.identities()] == ["H100-SXM"]
    node.cap_controller.gpus.close()


def test_it_sends_what_it_sees_to_a_jobs_watcher(watcher: NodeActor, tmp_path: Path) -> None:
    """As `fleetwright faults record --send`."""
    (port,) = free_ports(1)
    url, job, secret = f"http://{LOOPBACK}:{port}", tmp_path / "job.yaml", tmp_path / "secret"
    job.write_text("{nodes: 2, ranks_per_node: 2}")
    secret.write_text("s" * 32)
    argv: list[str | Path] = [sys.executable, "-m", "api.cli", "faults", "monitor", job, "--port", str(port)]
    with Process.start([*argv, "--token-file", secret], name="watch", log_dir=tmp_path) as process:
        process.wait_ready(lambda: answers_ok(f"{url}/healthz"))
        told = order(send=url, send_token_file=secret, peers={"127.0.1.1": 0, "127.0.1.2": 1}, ranks_per_node=2)
        wait_for(lambda: (tended(watcher, told), observed(url))[1], what="observations")


def observed(url: str) -> float:
    """How many observations a watcher has taken."""
    lines = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
    found = [line.split()[-1] for line in lines if line.startswith("fleetwright_faults_observations_total")]
    return sum(map(float, found))
