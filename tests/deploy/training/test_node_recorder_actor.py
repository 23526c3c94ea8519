"""A node recorder in this process: it observes a stopped real process and receives a rank's records."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.telemetry.batch_codec import decode
from deploy.training.node_recorder_actor import NodeRecorderActor, NodeRecorderSpec
from faults.observations import Heartbeat, Observation, Process
from fleetwright.collectives.sinks import sink_from
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
RANK = 3


@pytest.fixture
def pid() -> Iterator[int]:
    """The id of a sleeping process."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def recorder(pid: int, tmp_path: Path) -> Iterator[NodeRecorderActor]:
    spec = NodeRecorderSpec(
        node=1,
        nodes=2,
        rank_node=(0, 0, 1, 1),
        pid_of={RANK: pid},
        address_of={},
        inbox=str(tmp_path / "inbox"),
        period_s=0.02,
    )
    recorder = NodeRecorderActor(spec)
    yield recorder
    recorder.close()


def new_observations(recorder: NodeRecorderActor) -> list[Observation]:
    """The observations since the last call, as a monitor decodes them."""
    batch, _held = decode(recorder.take(), held_of=lambda _node, _session: None)
    assert (batch.node, batch.malformed) == (1, 0)
    return list(batch.others)


def test_a_stopped_rank_is_observed(recorder: NodeRecorderActor, pid: int) -> None:
    def states() -> set[str]:
        return {
            each.values.state
            for each in new_observations(recorder)
            if isinstance(each.values, Process) and each.rank == RANK
        }

    wait_for(states, lambda states: "S" in states, what="sleeping process")
    os.kill(pid, signal.SIGSTOP)
    wait_for(states, lambda states: "T" in states, what="stopped process")


def test_heartbeats_of_the_ranks_of_its_node_are_received(recorder: NodeRecorderActor, tmp_path: Path) -> None:
    sink = sink_from(f"unix:{tmp_path}/inbox", rank=RANK)
    beat = {"t": 1_800_000_000.0, "rank": RANK, "enq": 5, "done": 5, "op": None, "step": 4, "phase": "compute"}
    sink.put("hb", beat)
    sink.flush()
    sink.close()

    def beats() -> list[Observation]:
        return [each for each in new_observations(recorder) if isinstance(each.values, Heartbeat)]

    (observation,) = wait_for(beats, what="heartbeat")
    assert isinstance(observation.values, Heartbeat)
    assert (observation.rank, observation.node, observation.values.entered, observation.values.step) == (RANK, 1, 5, 4)
