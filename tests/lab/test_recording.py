"""Tests that the lab's recording is complete, readable, and consistent with the work of the ranks."""

from collections import Counter
from pathlib import Path

import pytest

from api.cli.faults.recordings import open_recording
from faults.observations import Collective, Heartbeat, PointToPoint, Probe, Process, Socket, SocketPoll
from faults.readers import Recording
from tests.testbed.lab import commands
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.session import SessionError, run_experiment
from tests.testbed.lab.workload import LibraryName, Workload

pytestmark = pytest.mark.lab

RANKS = 4
DURATION_S = 4.0


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory, library: LibraryName, torch_python: Path | None
) -> tuple[Workload, Recording]:
    """Record a healthy run of four ranks."""
    workload = Workload(ranks=RANKS, duration_s=DURATION_S, library=library, seed=3)
    folder = tmp_path_factory.mktemp("lab") / "run"
    experiment = Experiment(name="healthy", workload=workload, probe_bytes=16 << 10)
    run_experiment(experiment, folder=folder, python=torch_python)
    return workload, open_recording(folder)


def test_every_line_is_parsed_and_every_kind_is_present(recorded: tuple[Workload, Recording]) -> None:
    _, recording = recorded
    assert dict(recording.malformed) == {}
    assert recording.job.nodes == RANKS
    kinds = Counter(type(observation.values) for observation in recording.observations)
    assert {SocketPoll, Socket, Heartbeat, Collective, PointToPoint, Probe, Process} <= set(kinds)
    assert kinds[SocketPoll] >= RANKS * 4 * DURATION_S / 2  # four times a second, and a busy host may be late


def test_all_ranks_record_the_same_collectives(recorded: tuple[Workload, Recording]) -> None:
    _, recording = recorded
    ends: dict[int, list[tuple[int, str]]] = {rank: [] for rank in range(RANKS)}
    for observation in recording.observations:
        if isinstance(observation.values, Collective) and observation.rank is not None:
            ends[observation.rank].append((observation.values.seq, observation.values.op))
    shortest = min(map(len, ends.values()))
    assert shortest > 10
    assert all(calls[:shortest] == ends[0][:shortest] for calls in ends.values())


def test_kernel_byte_counters_match_the_collectives(recorded: tuple[Workload, Recording]) -> None:
    """Rank r-1 receives both halves of the ring all-reduce, a part of the all-to-all, and nothing of the ring pass."""
    workload, recording = recorded
    steps = max(
        observation.values.step or 0
        for observation in recording.observations
        if isinstance(observation.values, PointToPoint) and observation.rank == 2  # complete on both sides
    )
    acked = [
        observation.values.acked_bytes
        for observation in recording.observations
        if isinstance(observation.values, Socket) and (observation.node, observation.peer) == (2, 1)
    ]
    per_step = 2 * workload.all_reduce_bytes * (RANKS - 1) / RANKS + workload.all_to_all_bytes
    # Each message has a header, and the last sample may be two steps away from the last record.
    assert acked[-1] == pytest.approx(per_step * steps, rel=0.05, abs=2.0 * per_step)


def test_ranks_that_cannot_start_report_the_reason_and_leave_no_namespace(tmp_path: Path) -> None:
    before = commands.namespaces()
    experiment = Experiment(name="broken", workload=Workload(ranks=2, duration_s=1.0, all_to_all_bytes=-1))
    with pytest.raises(SessionError, match="negative dimensions"):
        run_experiment(experiment, folder=tmp_path / "run")
    assert commands.namespaces() == before
