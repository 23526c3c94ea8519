"""Recordings that a recorder writes can be read back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.telemetry.diag import Sample
from deploy.telemetry.folder import OtherRunError, RecordingFolder, refuse_other_run
from faults.observations import Collective, Heartbeat, Observation, Process
from faults.readers import read

GO_S = 1_795_000_000.0


def test_a_recording_can_be_read_back(tmp_path: Path) -> None:
    sample = Sample(GO_S + 1.0, 1, np.array([0]), np.arange(19, dtype=np.int64).reshape(1, 19))
    others = [
        Observation(GO_S + 1.5, 1, Heartbeat(3, 2, "all_reduce", 1, "comm"), rank=1),
        Observation(GO_S + 2.0, 1, Collective(3, "all_reduce", 64, GO_S + 1.4, GO_S + 2.0, 1), rank=1),
        Observation(GO_S + 2.5, 1, Process(77, "T", 0.5, 2), rank=1),
    ]
    folder = RecordingFolder(tmp_path, run={"n": 2, "t_go": GO_S, "dur": 10, "sample_hz": 4})
    folder.sample(sample)
    folder.observed(others)
    folder.close()
    found = read({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    assert found.malformed == {}
    values = [observation.values for observation in found.observations]
    assert values[:2] == [observation.values for observation in sample.observations()]
    assert values[2] == others[0].values
    assert values[4] == others[2].values
    assert found.observations[3].at_s == pytest.approx(2.0)


def test_the_first_recorder_writes_the_description_of_the_run(tmp_path: Path) -> None:
    RecordingFolder(tmp_path, run={"n": 2}).close()
    RecordingFolder(tmp_path, run={"n": 3}).close()
    assert '"n": 2' in (tmp_path / "run.json").read_text()


RUN = {"n": 4, "t_go": GO_S, "sample_hz": 4.0, "rank_node": [0, 0, 1, 1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 2, "rank_node": [0, 0]}, "n: is 4 there and 2 here"),
        ({"rank_node": [0, 1, 1, 1]}, r"rank_node\[1\]: is 0 there and 1 here"),
        ({"rank_node": None}, r"rank_node\[1\]: is 0 there and 1 here"),
        ({"sample_hz": 20.0}, "sample_hz: is 4 there and 20 here"),
    ],
)
def test_a_folder_of_another_run_is_refused_by_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    RecordingFolder(tmp_path, run=RUN).close()
    with pytest.raises(OtherRunError, match=f"{tmp_path}/run.json: {message}"):
        refuse_other_run(tmp_path, run=RUN | changes)


@pytest.mark.parametrize(
    "there",
    [
        None,
        "",  # another node's recorder is about to write the file
        json.dumps(RUN | {"t_go": GO_S - 60.0, "dur": 10, "groups": [[0, 1]], "leaves": ["a", "b"]}),
        json.dumps({"n": 4, "rank_node": [0, 0, 1, 1]}),  # the file of the job
    ],
    ids=["none", "begun", "before", "job's"],
)
def test_a_folder_of_the_same_run_may_be_shared_and_continued(tmp_path: Path, there: str | None) -> None:
    if there is not None:
        (tmp_path / "run.json").write_text(there)
    refuse_other_run(tmp_path, run=RUN)


def test_lines_are_written_together_when_the_oldest_is_due(tmp_path: Path) -> None:
    clock = [0.0]
    folder = RecordingFolder(tmp_path, run={"n": 2}, held_s=1.0, steady_s=lambda: clock[0])

    def lines() -> int:
        path = tmp_path / "tcp_node1.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    written: list[int] = []
    for poll in range(9):
        clock[0] = poll / 4
        folder.sample(Sample(GO_S + poll / 4, 1, np.array([0]), np.ones((1, 19), np.int64)))
        folder.flush()
        written.append(lines())
    folder.close()
    assert written == [0, 0, 0, 0, 5, 5, 5, 5, 9]
    assert lines() == 9


def test_lines_that_could_not_be_written_are_dropped(tmp_path: Path) -> None:
    folder = RecordingFolder(tmp_path, run={"n": 2})
    (tmp_path / "seen_node1.jsonl").mkdir()
    folder.observed([Observation(GO_S, 1, Process(77, "T", 0.5, 2), rank=1)])
    with pytest.raises(IsADirectoryError):
        folder.flush()
    (tmp_path / "seen_node1.jsonl").rmdir()
    folder.observed([Observation(GO_S + 1, 1, Process(77, "R", 0.5, 2), rank=1)])
    folder.flush()
    folder.close()
    assert len((tmp_path / "seen_node1.jsonl").read_text().splitlines()) == 1
