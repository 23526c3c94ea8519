"""`faults replay`: a recording's folder and a bundle give the contract's JSON; other paths are refused."""

import json
import os
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from api.cli.common.errors import CommandError
from api.cli.faults.replay import app
from faults.bundle import CallLog, write_bundle
from faults.monitor import MonitorSettings
from faults.observations import Collective, Heartbeat, Observation, Socket, SocketPoll
from faults.replay import calls, replay
from tests.faults.stories import Story
from tests.testbed.cli import Cli

HANG = Story(nodes=4, dead=((1, 0),), end_s=8.0)
KEYS = (
    *("class", "scope", "rank", "node", "host", "peer", "direction", "switch"),
    *("onset_s", "detected_s", "isolate", "confidence", "reason"),
)
T_GO_S = 1_795_000_000.0


def run_replay(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def replay_json(*arguments: object) -> Any:
    done = run_replay(*arguments, "--format", "json")
    assert done.exit_code == 0
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(HANG, tmp_path / "hang")


def written(story: Story, folder: Path) -> Path:
    """The observations of a story as a recording's folder."""
    folder.mkdir()
    run = {"n": story.nodes, "t_go": T_GO_S, "dur": story.end_s, "sample_hz": 4}
    (folder / "run.json").write_text(json.dumps(run))
    files: dict[str, list[str]] = defaultdict(list)
    polls: dict[tuple[float, int], list[list[int | None]]] = {}
    for observation in story.observations():
        if isinstance(observation.values, SocketPoll):
            polls[(observation.at_s, observation.node)] = []
        elif isinstance(observation.values, Socket):
            polls[(observation.at_s, observation.node)].append([observation.peer, *observation.values])
        else:
            name, line = _line(observation)
            files[name].append(line)
    for (at_s, node), rows in polls.items():
        files[f"tcp_node{node}.jsonl"].append(json.dumps({"t": T_GO_S + at_s, "node": node, "c": rows}))
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def _line(observation: Observation) -> tuple[str, str]:
    values = observation.values
    if isinstance(values, Heartbeat):
        beat = {
            "t": T_GO_S + observation.at_s,
            "rank": observation.rank,
            "enq": values.entered,
            "done": values.finished,
        }
        more = {"op": values.op, "step": values.step, "phase": values.phase}
        return f"hb_rank{observation.rank}.jsonl", json.dumps({**beat, **more})
    assert isinstance(values, Collective)
    assert values.finished_s is not None
    times = {"t0": T_GO_S + values.arrived_s, "t1": T_GO_S + values.finished_s}
    record = {"seq": values.seq, "op": values.op, "n": values.size_bytes, **times, "step": values.step}
    return f"coll_rank{observation.rank}.jsonl", json.dumps(record)


def test_json_is_a_list_of_diagnoses_with_the_keys_of_the_contract(folder: Path) -> None:
    (diagnosis,) = replay_json(folder)
    assert tuple(diagnosis) == KEYS
    assert diagnosis["class"] == "comm-hang"
    assert (diagnosis["scope"], diagnosis["node"], diagnosis["peer"], diagnosis["direction"]) == (
        "link",
        1,
        0,
        "forward",
    )
    assert diagnosis["isolate"] is False
    assert 0.0 <= diagnosis["detected_s"] - HANG.stop_s <= 3.0


def test_a_healthy_job_gives_an_empty_list(tmp_path: Path) -> None:
    assert replay_json(written(Story(goes_on=True, end_s=6.0), tmp_path / "healthy")) == []


def test_a_folder_without_observations_gives_an_empty_list_and_a_note(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"n": 2}')
    done = cli("faults", "replay", tmp_path, "--format", "json")
    assert done.json == []
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"no observations in {tmp_path}: expected the folder of a recording")


def test_a_folder_with_observations_gives_no_note(cli: Cli, tmp_path: Path) -> None:
    done = cli("faults", "replay", written(Story(goes_on=True, end_s=6.0), tmp_path / "healthy"), "--format", "json")
    assert (done.json, done.stderr) == ([], "")


def test_the_text_output_is_a_table(folder: Path) -> None:
    table = run_replay(folder).stdout
    assert "comm-hang" in table
    assert "1->0" in table


def test_a_bundle_replays_to_the_same_diagnoses(folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "hang.bundle"
    from_folder = replay_json(folder, "--bundle-out", bundle)
    assert replay_json(bundle) == from_folder


def test_a_bundle_of_a_bundle_is_the_same_file(folder: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    replay_json(folder, "--bundle-out", first)
    replay_json(first, "--bundle-out", second)
    assert first.read_bytes() == second.read_bytes()


def test_a_changed_bundle_is_refused(folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "hang.bundle"
    replay_json(folder, "--bundle-out", bundle)
    bundle.write_text(bundle.read_text().replace('"comm-hang"', '"crash"'))
    with pytest.raises(CommandError, match="sum"):
        run_replay(bundle)


def test_an_unproven_bundle_lists_the_missing_diagnoses(tmp_path: Path) -> None:
    settings = MonitorSettings()
    live = replay(HANG.job, HANG.observations(), settings)
    tape = CallLog(max_calls=8)
    for call in calls(HANG.observations(), period_s=settings.judge_s):
        tape.add(call)
    bundle, again = tmp_path / "hang.bundle", tmp_path / "again"
    lines = write_bundle(HANG.job, settings, tape, version=version("fleetwright"), dropped=tape.dropped, live=live)
    bundle.write_text("".join(lines))
    done = run_replay(bundle, "--format", "json", "--bundle-out", again)
    assert done.exit_code == 0  # the replay is exact, but the live diagnoses are missing from it
    assert f"unproven bundle: {tape.dropped:,} calls were dropped" in done.stderr
    assert all(diagnosis.reason in done.stderr for diagnosis in live)
    (missing,) = json.loads(done.stdout)
    assert (missing["class"], missing["node"], missing["proven"]) == ("comm-hang", 1, False)
    assert "no faults" in run_replay(bundle).stdout
    assert again.read_bytes() == bundle.read_bytes()


def test_a_path_that_is_neither_a_recording_nor_a_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder", "nowhere"):
        with pytest.raises(CommandError, match=name):
            run_replay(tmp_path / name)


def test_an_unwritable_bundle_path_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no folder"):
        run_replay(folder, "--bundle-out", tmp_path / "missing" / "bundle")


def test_a_named_pipe_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CommandError, match="is neither a folder nor a file"):
        run_replay(tmp_path / "pipe")
