"""`fleetwright faults record` and `faults monitor` with invalid input, and a short recording of this machine."""

import os
from pathlib import Path

import pytest

from faults.readers import read
from tests.testbed.cli import Cli

RECORD = ["faults", "record", "--peers", "127.5.0.1=0,127.5.0.2=1"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "nowhere to record to: give --output DIR or --send URL"),
        (["-o", "D", "--peers", "10.0.0.1=x"], "--peers: 10.0.0.1=x: expected ADDRESS=INDEX"),
        (["-o", "D", "--peers", "none.txt"], "--peers none.txt: No such file or directory"),
        (["-o", "D", "--pid", "0=x"], "--pid 0=x: expected PID or RANK=PID"),
        (["--send", "ftp://x"], "--send ftp://x: expected http://HOST:PORT"),
        (["-o", "D", "--dcgm", "http://x:99999"], "--dcgm http://x:99999: expected http://HOST:PORT"),
        (["-o", "D", "--ras", "localhost"], "--ras localhost: expected HOST:PORT"),
        (["-o", "D", "--probes-only"], "--probes-only: give --probe BYTES, the size of a train"),
        (["-o", "D", "--node", "2"], "--node 2: is none of the nodes among the peers, which are 0, 1 (--peers)"),
        (["--probes-only", "--probe", "64"], "nowhere to record to: give --output DIR or --send URL"),
    ],
)
def test_invalid_input_is_refused_by_option(cli: Cli, args: list[str], message: str) -> None:
    done = cli(*RECORD, *args)
    assert done.code == 2
    (line,) = done.refused
    assert message in line


def test_a_missing_namespace_is_refused(cli: Cli, tmp_path: Path) -> None:
    done = cli(*RECORD, "-o", tmp_path / "r", "--netns", "fw-none")
    assert done.code != 0
    assert any("cannot record" in line for line in done.refused)


def test_an_existing_file_as_inbox_is_refused_and_kept(cli: Cli, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.write_text("precious")
    done = cli(*RECORD, "-o", tmp_path / "r", "--inbox", inbox)
    assert done.code == 1
    assert done.refused == [f"cannot record: {inbox} is a file, expected a free path or a socket that was left behind"]
    assert inbox.read_text() == "precious"


def test_an_inconsistent_job_is_refused(cli: Cli, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("{nodes: 2, rank_node: [0, 2]}")
    done = cli("faults", "monitor", job)
    assert done.code == 2
    assert any("rank_node[1]: expected a node from 0 to 1, got 2" in line for line in done.refused)


@pytest.mark.parametrize(
    "options",
    [
        ["--inbox", "I"],
        ["--flights", "F"],
        ["--infiniband"],
        ["--dcgm", "http://x:9400"],
        ["--xpu-timer", "http://x:9401"],
        ["--ras", "localhost:28028"],
    ],
    ids=lambda options: options[0],
)
def test_options_of_a_recorder_are_refused_for_a_prober(cli: Cli, tmp_path: Path, options: list[str]) -> None:
    done = cli(*RECORD, "-o", tmp_path / "r", "--probes-only", "--probe", "64", *options)
    assert done.code == 2
    (line,) = done.refused
    assert f"give {options[0]} to the node's recorder" in line
    assert not (tmp_path / "r").exists()


def test_a_prober_without_peers_reports_nothing(cli: Cli, tmp_path: Path) -> None:
    own = f"127.{os.getpid() % 200 + 10}.{os.getpid() // 200 % 250}.1"  # an address that no other test uses
    alone = ["faults", "record", "--peers", f"{own}=0", "--probes-only", "--probe", "2048"]
    done = cli(*alone, "--hz", "20", "--duration", "0.3", "-o", tmp_path)
    assert done.code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert " 0 observations" in done.stderr


def test_a_short_recording_can_be_read(cli: Cli, tmp_path: Path) -> None:
    done = cli(*RECORD, "-o", tmp_path, "--hz", "20", "--duration", "0.3")
    assert done.code == 0
    found = read({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    assert found.job.nodes == 2
    assert found.observations
    assert found.malformed == {}


def test_recorders_and_probers_of_one_run_share_and_extend_a_folder(cli: Cli, tmp_path: Path) -> None:
    own = f"127.{os.getpid() % 200 + 10}.{os.getpid() // 200 % 250}.1"
    always = ["faults", "record", "--peers", f"{own}=0,127.5.0.2=1", "--hz", "20", "--duration", "0.2"]
    begun: list[list[str]] = [[], [], ["--node", "1"], ["--probes-only", "--probe", "2048"]]
    for more in begun:
        assert cli(*always, *more, "-o", tmp_path).code == 0
    found = read({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    assert {observation.node for observation in found.observations} == {0, 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hz", "4"], "sample_hz: is 20 there and 4 here"),
        (["--hz", "20", "--ranks-per-node", "2"], "n: is 2 there and 4 here"),
    ],
)
def test_a_folder_of_another_run_is_refused_by_field(
    cli: Cli, tmp_path: Path, options: list[str], message: str
) -> None:
    assert cli(*RECORD, "-o", tmp_path, "--hz", "20", "--duration", "0.1").code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = cli(*RECORD, "-o", tmp_path, "--duration", "0.1", *options)
    assert done.code == 2
    assert done.refused == [f"--output {tmp_path}/run.json: {message}, expected a folder of its own"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
