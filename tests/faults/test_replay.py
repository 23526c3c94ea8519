"""A replay evaluates at the same times as a live monitor, and diagnoses shared recordings correctly."""

from pathlib import Path

import pytest

from api.cli.faults.recordings import open_recording
from faults.detector import Job
from faults.diagnosis import Scope
from faults.observations import Observation, SocketPoll
from faults.replay import calls, replay

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "faults"
# class, scope, node, peer, and the time of the fault after t_go
EXPECTED = {
    "hang_sigstop": ("noncomm-hang", 5, None, 8.0),
    "hang_user_code": ("noncomm-hang", 1, None, 8.0),
    "hang_node_cut": ("comm-hang", 4, None, 8.0),
    "hang_link_cut": ("comm-hang", 3, 2, 8.0),
    "crash_sigkill": ("crash", 6, None, 8.0),
    "hang_fr_multigroup": ("noncomm-hang", 2, None, 0.0),
}
LIMIT_S = {"noncomm-hang": 3.0, "comm-hang": 3.0, "crash": 1.0}


def poll(at_s: float) -> Observation:
    return Observation(at_s, 0, SocketPoll(0))


def test_evaluations_follow_observations() -> None:
    recorded_calls = list(calls([poll(0.1), poll(0.2), poll(0.3), poll(100.1)], period_s=0.25))
    assert recorded_calls == [poll(0.1), poll(0.2), 0.25, poll(0.3), 0.5, poll(100.1), 100.25]


def test_without_observations_there_is_no_evaluation() -> None:
    assert replay(Job(1, (0,)), ()) == ()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_hang_or_crash_is_diagnosed(name: str) -> None:
    if not (RECORDINGS / name).is_dir():
        pytest.skip("the shared recordings are not present")
    recording = open_recording(RECORDINGS / name)
    found = [
        diagnosis
        for diagnosis in replay(recording.job, recording.observations)
        if diagnosis.scope is not Scope.WORKLOAD
    ]
    fault, node, peer, at_s = EXPECTED[name]
    assert [(diagnosis.fault.value, diagnosis.node, diagnosis.peer) for diagnosis in found] == [(fault, node, peer)]
    assert found[0].isolate == (peer is None)
    assert found[0].detected_s - at_s <= LIMIT_S[fault]
