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
    """Of a process that sleeps."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def eye(pid: int, tmp_path: Path) -> Iterator[NodeRecorderActor]:
    spec = NodeRecorderSpec(
        node=1,
        nodes=2,
        rank_node=(0, 0, 1, 1),
        pid_of={RANK: pid},
        address_of={},
        inbox=str(tmp_path / "inbox"),
        period_s=0.02,
    )
    eye = NodeRecorderActor(spec)
    yield eye
    eye.close()


def seen(eye: NodeRecorderActor) -> list[Observation]:
    """Since the last call, as a monitor decodes it."""
    batch, _held = decode(eye.take(), held_of=lambda _node, _session: None)
    assert (batch.node, batch.malformed) == (1, 0)
    return list(batch.others)


def test_it_sees_a_rank_stop(eye: NodeRecorderActor, pid: int) -> None:
    def states() -> set[str]:
        return {each.values.state for each in seen(eye) if isinstance(each.values, Process) and each.rank == RANK}

    wait_for(states, lambda states: "S" in states, what="sleeping process")
    os.kill(pid, signal.SIGSTOP)
    wait_for(states, lambda states: "T" in states, what="stopped process")


def test_it_hears_what_ranks_of_its_node_say(eye: NodeRecorderActor, tmp_path: Path) -> None:
    sink = sink_from(f"unix:{tmp_path}/inbox", rank=RANK)
    beat = {"t": 1_800_000_000.0, "rank": RANK, "enq": 5, "done": 5, "op": None, "step": 4, "phase": "compute"}
    sink.put("hb", beat)
    sink.flush()
    sink.close()

    def beats() -> list[Observation]:
        return [each for each in seen(eye) if isinstance(each.values, Heartbeat)]

    (heard,) = wait_for(beats, what="heartbeat")
    assert isinstance(heard.values, Heartbeat)
    assert (heard.rank, heard.node, heard.values.entered, heard.values.step) == (RANK, 1, 5, 4)
