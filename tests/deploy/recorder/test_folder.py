"""What a recorder writes is what the reader of recordings reads."""

from pathlib import Path

import numpy as np
import pytest

from deploy.recorder.diag import Sample
from deploy.recorder.folder import RecordingFolder
from faults.observations import Collective, Heartbeat, Observation, Process
from faults.readers import read

GO_S = 1_795_000_000.0


def test_a_recording_comes_back(tmp_path: Path) -> None:
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
    values = [seen.values for seen in found.observations]
    assert values[:2] == [seen.values for seen in sample.observations()]
    assert values[2] == others[0].values
    assert values[4] == others[2].values
    assert found.observations[3].at_s == pytest.approx(2.0)


def test_the_first_recorder_describes_the_run(tmp_path: Path) -> None:
    RecordingFolder(tmp_path, run={"n": 2}).close()
    RecordingFolder(tmp_path, run={"n": 3}).close()
    assert '"n": 2' in (tmp_path / "run.json").read_text()
