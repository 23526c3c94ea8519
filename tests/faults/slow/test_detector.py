"""The whole detector on a stepwise job, and on the shared recordings if present."""

from pathlib import Path

import numpy as np
import pytest

from api.cli.faults.recordings import open_recording
from faults.detector import Job
from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.observations import Collective, Observation, Socket, SocketPoll
from faults.slow import SlowDetector

RECORDINGS = Path(__file__).resolve().parents[4] / "shared" / "data" / "faults"
NODES, STEP_S, RING_BYTES, SHORT_BYTES = 6, 0.2, 2_000_000, 40_000


def job(slow: dict[tuple[int, int], float], from_s: float, until_s: float) -> list[Observation]:
    """A ring with short messages between all nodes. Slow pairs take longer from `from_s` on, and so do the steps."""
    rng = np.random.default_rng(3)
    acked, busy = np.zeros((NODES, NODES)), np.zeros((NODES, NODES))
    found, now_s, step = [], 0.0, 0
    next_poll_s = 0.0
    while now_s < until_s:
        factors = slow if now_s >= from_s else {}
        took_s = STEP_S + 0.1 * (max([1.0, *factors.values()]) - 1.0)
        for i in range(NODES):
            for j in range(NODES):
                if i == j:
                    continue
                ring = j == (i - 1) % NODES
                took = (0.1 if ring else 0.006) * factors.get((i, j), 1.0) * float(rng.lognormal(0, 0.1))
                acked[i, j] += RING_BYTES if ring else SHORT_BYTES
                busy[i, j] += 1e6 * took
            arrived_s = now_s + 0.03 + float(rng.normal(0, 0.002))
            found.append(Observation(now_s + took_s, i, Collective(step, "x", 1, arrived_s, now_s + took_s, step), i))
        now_s, step = now_s + took_s, step + 1
        while next_poll_s <= now_s:
            for i in range(NODES):
                found.append(Observation(next_poll_s, i, SocketPoll(NODES - 1)))
                found += [
                    Observation(next_poll_s, i, Socket(1, int(acked[i, j]), 0, int(busy[i, j]), *([0] * 15)), peer=j)
                    for j in range(NODES)
                    if j != i
                ]
            next_poll_s += 0.25
    return sorted(found, key=lambda observation: observation.at_s)


def diagnoses(described: Job, observations: list[Observation]) -> dict[tuple[object, ...], Diagnosis]:
    detector, now_s = SlowDetector(described), observations[0].at_s
    found: dict[tuple[object, ...], Diagnosis] = {}
    for observation in observations:
        while observation.at_s > now_s:
            for diagnosis in detector.evaluate(now_s):
                found.setdefault((diagnosis.fault, diagnosis.scope, diagnosis.node, diagnosis.peer), diagnosis)
            now_s += 0.25
        detector.observe(observation)
    return found


def first_reported_s(evaluated_s: list[float], observations: list[Observation]) -> dict[tuple[object, ...], float]:
    """The first report time of each fault, for a detector that is evaluated at these times."""
    detector, known = SlowDetector(Job(NODES, tuple(range(NODES)))), iter(observations)
    found: dict[tuple[object, ...], float] = {}
    waiting = next(known)
    for now_s in evaluated_s:
        while waiting.at_s <= now_s:
            detector.observe(waiting)
            waiting = next(known)
        for diagnosis in detector.evaluate(now_s):
            found.setdefault(
                (diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.direction), diagnosis.detected_s
            )
    return found


@pytest.mark.parametrize("scatter_s", [0.003, 0.02])
@pytest.mark.parametrize("seed", range(4))
def test_jitter_of_the_evaluation_times_does_not_change_the_diagnoses(scatter_s: float, seed: int) -> None:
    observations = job({(4, 3): 2.5}, 9.0, 16.0)
    grid_s = [0.1 + 0.25 * turn for turn in range(60)]
    scattered_s = (np.array(grid_s) + np.random.default_rng(seed).uniform(-scatter_s, scatter_s, len(grid_s))).tolist()
    on_grid, scattered = first_reported_s(grid_s, observations), first_reported_s(scattered_s, observations)
    assert set(scattered) == set(on_grid) == {(Scope.LINK, 4, 3, Direction.FORWARD)}
    assert list(scattered.values()) == pytest.approx(list(on_grid.values()), abs=2 * scatter_s)


def test_one_late_evaluation_does_not_shift_later_evaluations() -> None:
    observations = job({(4, 3): 2.5}, 9.0, 16.0)
    grid_s = [0.1 + 0.25 * turn for turn in range(60)]
    late_s = [at_s + 0.2 * (turn == 20) for turn, at_s in enumerate(grid_s)]
    assert first_reported_s(late_s, observations) == first_reported_s(grid_s, observations)


def reported(slow: dict[tuple[int, int], float], from_s: float = 9.0) -> list[Diagnosis]:
    return list(diagnoses(Job(NODES, tuple(range(NODES))), job(slow, from_s, 15.0)).values())


def test_a_healthy_job_has_no_diagnosis() -> None:
    assert reported({}) == []


def test_a_slow_link_is_diagnosed_as_a_link_and_isolates_no_node() -> None:
    (found,) = reported({(4, 3): 2.5})
    assert (found.scope, found.node, found.peer, found.isolate) == (Scope.LINK, 4, 3, False)
    assert 9.0 < found.detected_s < 14.0


def test_a_slow_nic_is_diagnosed_as_a_node() -> None:
    row = {(2, j): 2.5 for j in range(NODES) if j != 2}
    column = {(j, 2): 2.5 for j in range(NODES) if j != 2}
    (found,) = reported(row | column)
    assert (found.fault, found.scope, found.node) == (FaultClass.COMM_SLOW, Scope.NODE, 2)


def test_a_nic_slow_from_the_first_second_is_found_by_its_peers() -> None:
    row = {(2, j): 3.0 for j in range(NODES) if j != 2}
    column = {(j, 2): 3.0 for j in range(NODES) if j != 2}
    (found,) = reported(row | column, from_s=0.0)
    assert (found.scope, found.node) == (Scope.NODE, 2)


def test_uniformly_slow_pairs_give_no_diagnosis() -> None:
    everything = {(i, j): 1.6 for i in range(NODES) for j in range(NODES) if i != j}
    assert reported(everything) == []


def test_a_stalled_job_gives_no_diagnosis() -> None:
    observations = job({}, 99.0, 8.0)
    detector = SlowDetector(Job(NODES, tuple(range(NODES))))
    for observation in observations:
        detector.observe(observation)
    assert list(detector.evaluate(60.0)) == []


EXPECTED = {
    "slow_node_tx": (FaultClass.COMM_SLOW, Scope.NODE, 3, None, Direction.TX),
    "healthy_a": None,
}


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the shared recordings are not present")
@pytest.mark.parametrize("name", EXPECTED)
def test_recordings_give_the_expected_diagnoses(name: str) -> None:
    recording = open_recording(RECORDINGS / name)
    found = list(diagnoses(recording.job, list(recording.observations)).values())
    expected = EXPECTED[name]
    if expected is None:
        assert found == []
        return
    (diagnosis,) = found
    assert (diagnosis.fault, diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.direction) == expected
    assert 8.0 < diagnosis.detected_s < 13.0
