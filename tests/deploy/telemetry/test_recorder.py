"""The recorder loop with real sources: connections of this namespace, a process, a folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import pytest

from deploy.telemetry.diag import Sample
from deploy.telemetry.folder import RecordingFolder
from deploy.telemetry.peers import Peers
from deploy.telemetry.processes import ProcessSource
from deploy.telemetry.recorder import Recorder, RecorderClock
from deploy.telemetry.sockets import SocketSource
from faults.observations import Observation, Process, Socket
from faults.readers import read
from tests.deploy.telemetry.connections import connection
from tests.testbed.waiting import wait_for

GO_S = 1_000.0


class Broken:
    """A source whose polls always fail."""

    name, period_s = "broken", 0.0

    def poll(self, now_s: float) -> Sequence[Observation]:
        raise PermissionError(f"not at {now_s}")

    def close(self) -> None:
        raise OSError("nor closed")


class Full:
    """A sink on a full disk."""

    def is_due(self) -> bool:
        return False

    def sample(self, sample: Sample) -> None:
        raise OSError(28, f"no space for node {sample.node}")

    def observed(self, observations: Sequence[Observation]) -> None:
        raise OSError(28, f"no space for {len(observations)}")

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_observations_are_recorded_despite_a_failing_source_and_sink(tmp_path: Path) -> None:
    peers = Peers({"127.4.0.1": 0, "127.4.0.2": 1})
    folder = RecordingFolder(tmp_path, run={"n": 2, "t_go": time.time(), "dur": 10, "sample_hz": 50})
    with connection("127.4.0.2") as (client, _accepted):
        client.sendall(b"x" * 999)
        recorder = Recorder(
            sockets=SocketSource(node=0, peers=peers), sources=[Broken()], sinks=[Full(), folder], period_s=0.02
        )
        tally = recorder.run(Event(), duration_s=0.2)
    found = read({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    sockets = [observation.values for observation in found.observations if isinstance(observation.values, Socket)]
    assert len(sockets) == tally.polls > 0
    assert {(one.connections, one.acked_bytes) for one in sockets} == {(1, 1000)}  # the SYN counts
    assert tally.failures == {"broken": tally.polls, "sample": tally.polls, "close": 1}


def test_polls_fall_on_whole_periods_and_late_ones_are_counted() -> None:
    times = iter([10.1, 10.26, 11.1])
    clock = RecorderClock(now_s=lambda: next(times), steady_s=lambda: 0.0)
    recorder = Recorder(sockets=None, sinks=[], period_s=0.25, clock=clock)
    waits = [recorder._until_next_s() for _ in range(3)]
    assert waits == pytest.approx([0.15, 0.24, 0.15])
    assert recorder.tally.late_polls == 2  # 10.5 and 10.75


class Counting(Full):
    """A source, and a sink, that count their calls."""

    name, period_s = "counting", 0.125

    def __init__(self) -> None:
        self.polls = self.flushes = 0

    def poll(self, now_s: float) -> Sequence[Observation]:  # noqa: ARG002 - the port's
        self.polls += 1
        return ()

    def flush(self) -> None:
        self.flushes += 1


def test_a_source_may_be_polled_more_often_than_sinks_are_flushed() -> None:
    now_s = 100.0
    clock = RecorderClock(now_s=lambda: now_s, steady_s=lambda: now_s)
    counting = Counting()
    recorder = Recorder(sockets=None, sources=[counting], sinks=[counting], period_s=0.25, ticks=2, clock=clock)
    assert recorder.tick_s == 0.125
    for _ in range(8):
        recorder.poll()
        now_s += recorder.tick_s
    assert (counting.polls, counting.flushes) == (8, 4)


def test_a_process_is_followed_to_its_end(sleeper: subprocess.Popen[bytes]) -> None:
    source = ProcessSource(node=2, pid_of={5: sleeper.pid})

    def state() -> str:
        (observation,) = source.poll(GO_S)
        assert (observation.at_s, observation.node, observation.rank) == (GO_S, 2, 5)
        assert isinstance(observation.values, Process)
        return observation.values.state

    wait_for(lambda: state() == "S", what="sleep")
    sleeper.send_signal(signal.SIGSTOP)
    wait_for(lambda: state() == "T", what="stop")
    sleeper.kill()
    wait_for(lambda: state() == "Z", what="zombie state before the parent waits")
    sleeper.wait()
    assert state() == "gone"
    source.close()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="a kernel without scheduler statistics")
def test_the_cpu_wait_of_a_process_is_reported() -> None:
    """Two processes that only compute, on one core, each wait for half of the time."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # inherited by both processes
    try:
        spinning = [subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) for _ in range(2)]
    finally:
        os.sched_setaffinity(0, cores)
    source = ProcessSource(node=0, pid_of={rank: one.pid for rank, one in enumerate(spinning)})

    def waited() -> bool:
        reported = [
            observation.values.waited_s for observation in source.poll(GO_S) if isinstance(observation.values, Process)
        ]
        return all(each is not None and each > 0.02 for each in reported)

    try:
        wait_for(waited, what="waiting for a core")
    finally:
        source.close()
        for one in spinning:
            one.kill()
            one.wait()


def test_a_process_that_never_existed_is_gone() -> None:
    (observation,) = ProcessSource(node=0, pid_of={0: 1 << 22}).poll(GO_S)
    assert isinstance(observation.values, Process)
    assert observation.values.state == "gone"
