"""`fleetwright agent --record`: the recorder of `faults record` in the agent's own process; errors name the field."""

import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from api.cli.faults.record import record
from deploy.telemetry.factory import RecordingFile
from tests.testbed.cli import Cli
from tests.testbed.processes import LOOPBACK, Process, free_ports
from tests.testbed.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[4]


def written(folder: Path, **fields: Any) -> Path:
    path = folder / "record.yaml"
    path.write_text(yaml.safe_dump({"peers": {LOOPBACK: 0}, "output": str(folder / "recording"), **fields}))
    return path


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"output": None}, "no destination"),
        ({"peers": {}}, "peers"),
        ({"peers": {"nobody": 0}}, "expected an IPv4 or IPv6 address"),
        ({"node": 1}, "node: 1 is none of the nodes among the peers, which are 0"),
        ({"hz": 1000}, "hz"),
        ({"secret": 1}, "secret"),
        ({"send": "http://127.0.0.1:9", "token_file": "/nonexistent/token"}, "/nonexistent/token"),
        ({"netns": "/nonexistent/ns"}, "--record: No such file or directory"),
    ],
)
def test_an_invalid_file_is_reported_before_the_agent_serves(
    cli: Cli, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    done = cli("agent", "n1", "--port", "0", "--device", "simulated", "--record", written(tmp_path, **fields))
    assert done.code == 2
    assert message in done.stderr


def test_the_file_has_the_options_of_faults_record() -> None:
    """The file has a field for every option of `faults record`."""
    renamed = {"pid": "pids", "ignore_port": "ignored_ports", "probe": "probe_bytes", "budget": "budget_bytes_per_s"}
    renamed |= {"probe_every": "probe_every_s"}
    options = {renamed.get(name, name) for name in record.__annotations__} - {"return", "log_level", "duration"}
    assert options - set(RecordingFile.model_fields) == {"ras"}


def test_one_process_serves_and_records(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}/v1/gpus"
    argv = [sys.executable, "-m", "api.cli", "agent", "n1", "--device", "simulated", "--port", str(port)]
    argv += ["--record", str(written(tmp_path, hz=20.0))]

    def is_serving() -> bool:
        try:
            return bool(httpx.get(url, trust_env=False, timeout=10.0).json()["gpus"])
        except httpx.TransportError:
            return False

    def lines() -> int:
        return sum(len(path.read_text().splitlines()) for path in (tmp_path / "recording").rglob("*node0.jsonl"))

    with Process.start(argv, name="agent", log_dir=tmp_path, cwd=ROOT) as agent:
        agent.wait_ready(is_serving)
        wait_for(lines, lambda count: count > 0, what="records in the folder")
        assert agent.stop(grace_s=PATIENCE_S) in (0, -signal.SIGTERM)
    assert "recorded" in agent.log_path.read_text()


RECORDER_FIELDS = {
    "inbox": "inbox",
    "flights": "flights",
    "infiniband": True,
    "dcgm": "http://h:1",
    "xpu_timer": "http://h:1",
}


@pytest.mark.parametrize(
    ("more", "field"),
    [({}, "probe_bytes"), *(({"probe_bytes": 2048, name: value}, name) for name, value in RECORDER_FIELDS.items())],
)
def test_a_file_for_probes_alone_names_missing_and_extra_fields(more: dict[str, object], field: str) -> None:
    alone = {"peers": {"10.0.0.1": 0}, "output": "folder", "probes_only": True}
    with pytest.raises(ValueError, match=field):
        RecordingFile.model_validate(alone | more)
    assert RecordingFile.model_validate(alone | {"probe_bytes": 2048}).probes_only
