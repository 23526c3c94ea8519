"""The node actor of one node, in this process: its configuration and its reports."""

import json
import os
import sys
import threading
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
def node_actor() -> Iterator[NodeActor]:
    node_actor = NodeActor("a0")
    yield node_actor
    node_actor.close()


def config_of(
    *, index: int = 0, peers: dict[str, int] | None = None, boards: int = 0, **settings: Any
) -> dict[str, Any]:
    watch = NodeActorSettings.model_validate({"hz": 50.0} | settings)
    config = NodeActorConfig(
        index=index, node_name="gpu-1", peers=peers or {}, gpus=boards, accelerator="H100", settings=watch
    )
    return config.model_dump(mode="json")


def report_of(node_actor: NodeActor, config: dict[str, Any]) -> NodeReport:
    return NodeReport.model_validate(node_actor.tend(config))


def test_the_node_actor_reports_its_node_and_keeps_polling(node_actor: NodeActor) -> None:
    config = config_of(index=4)
    first = report_of(node_actor, config)
    assert (first.node_id, first.node_name, first.index, first.pid) == ("a0", "gpu-1", 4, os.getpid())
    wait_for(lambda: report_of(node_actor, config).polls, lambda polls: polls > first.polls, what="polls")
    assert report_of(node_actor, config).message is None


def test_a_closed_node_actor_does_not_end_its_process_later(node_actor: NodeActor) -> None:
    (waiting,) = (each for each in threading.enumerate() if each.name == "orphan")
    node_actor.close()
    waiting.join(timeout=5.0)
    assert not waiting.is_alive()


def test_observations_are_recorded_into_a_folder(node_actor: NodeActor, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    config = config_of(index=1, folder=str(folder), peers={"127.0.1.1": 0, "127.0.1.2": 1}, ranks_per_node=2)
    report = report_of(node_actor, config)
    assert report.peers == 2
    wait_for(lambda: report_of(node_actor, config).observations, what="observations of sockets")
    node_actor.close()
    assert json.loads((folder / "run.json").read_text())["rank_node"] == [0, 0, 1, 1]
    wait_for(lambda: [path.name for path in folder.iterdir() if path.name != "run.json"], what="lines")


def test_a_changed_configuration_restarts_the_recorder(node_actor: NodeActor, tmp_path: Path) -> None:
    config = config_of()
    report_of(node_actor, config)
    wait_for(lambda: report_of(node_actor, config).polls, lambda polls: polls > 2, what="polls")
    folder = tmp_path / "later"
    report_of(node_actor, config_of(folder=str(folder)))
    assert (folder / "run.json").exists()


def test_gpus_are_read_and_never_written(node_actor: NodeActor) -> None:
    config = config_of(boards=2, gpus=GpuSource.SIMULATED)
    report = wait_for(
        lambda: report_of(node_actor, config),
        lambda report: report.gpus and all(gpu["power_w"] for gpu in report.gpus["gpus"]),
        what="watts",
    )
    assert report.gpus is not None
    assert (report.gpus["act"], report.gpus["driver"]) == ("observe", "simulated")
    assert [gpu["name"] for gpu in report.gpus["gpus"]] == ["H100-SXM"] * 2
    assert report_of(node_actor, config_of(boards=2, gpus=GpuSource.NONE)).gpus is None


def test_a_source_that_fails_is_reported_and_the_rest_is_polled(node_actor: NodeActor, tmp_path: Path) -> None:
    """This machine has no GPU driver, and the path of the folder is a file."""
    file = tmp_path / "file"
    file.touch()
    config = config_of(folder=str(file / "below"))
    assert "cannot record" in (report_of(node_actor, config).message or "")
    fine = config_of()
    wait_for(lambda: report_of(node_actor, fine).polls, what="polls")
    assert report_of(node_actor, fine).message is None


def test_gpus_without_a_working_driver_are_reported() -> None:
    def silent(driver: str, _options: object) -> Any:
        raise GpuError(f"no library of {driver}")

    config = NodeActorConfig(index=0, node_name="n", gpus=8, settings=NodeActorSettings())
    with pytest.raises(GpuError, match="nvml: no library of nvml; amd: no library of amd"):
        gpus_of(config, open_driver=silent)
    assert gpus_of(config.model_copy(update={"gpus": 0}), open_driver=silent) is None
    assert (
        gpus_of(config.model_copy(update={"settings": NodeActorSettings(gpus=GpuSource.NONE)}), open_driver=silent)
        is None
    )


def test_an_unknown_accelerator_is_simulated_as_an_h100() -> None:
    config = NodeActorConfig(
        index=0, node_name="n", gpus=1, accelerator="X9000", settings=NodeActorSettings(gpus=GpuSource.SIMULATED)
    )
    node = gpus_of(config)
    assert node is not None
    assert [identity.name for identity in node.cap_controller.gpus.identities()] == ["H100-SXM"]
    node.cap_controller.gpus.close()


def test_observations_are_sent_to_the_fault_monitor_of_a_job(node_actor: NodeActor, tmp_path: Path) -> None:
    """The node actor sends as `fleetwright faults record --send` does."""
    (port,) = free_ports(1)
    url, job, secret = f"http://{LOOPBACK}:{port}", tmp_path / "job.yaml", tmp_path / "secret"
    job.write_text("{nodes: 2, ranks_per_node: 2}")
    secret.write_text("s" * 32)
    argv: list[str | Path] = [sys.executable, "-m", "api.cli", "faults", "monitor", job, "--port", str(port)]
    with Process.start([*argv, "--token-file", secret], name="watch", log_dir=tmp_path) as process:
        process.wait_ready(lambda: answers_ok(f"{url}/healthz"))
        config = config_of(send=url, send_token_file=secret, peers={"127.0.1.1": 0, "127.0.1.2": 1}, ranks_per_node=2)
        wait_for(lambda: (report_of(node_actor, config), observed(url))[1], what="observations")


def observed(url: str) -> float:
    """The number of observations that a fault monitor has received."""
    lines = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
    found = [line.split()[-1] for line in lines if line.startswith("fleetwright_faults_observations_total")]
    return sum(map(float, found))
