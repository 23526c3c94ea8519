"""A separate prober finds its peers by polls, which may fail, and reports only trains."""

import errno
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.telemetry import factory
from deploy.telemetry.diag import Sample
from deploy.telemetry.factory import POLLED_EVERY_S, ConnectedPeersSource, Recording, recorder_of
from deploy.telemetry.peers import Peers
from deploy.telemetry.prober import Prober
from deploy.telemetry.recorder import Recorder, RecorderClock
from faults.observations import Observation, Probe, ProbeReturned
from faults.readers import read
from fleet.documents import RuleError
from tests.deploy.telemetry.connections import connection
from tests.deploy.telemetry.loopback import ADDRESSES, HERE, arrived, free_port
from tests.testbed.waiting import wait_for

GO_S = 1_795_000_000.0


class CollectingSink:
    """A sink that stores everything."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.observations: list[Observation] = []

    def is_due(self) -> bool:
        return False

    def sample(self, sample: Sample) -> None:
        self.samples.append(sample)

    def observed(self, observations: Sequence[Observation]) -> None:
        self.observations += observations

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Flaky:
    """Sockets of a job with a peer, node 2, from the second poll on; every other poll fails."""

    def __init__(self) -> None:
        self.polls = 0
        self._connected_peers: AbstractSet[int] = frozenset()

    def poll(self, now_s: float, *, wanted: bool) -> Sequence[Sample]:
        assert wanted
        self.polls += 1
        if self.polls % 2:
            raise OSError(errno.ENOBUFS, f"at {now_s}")
        self._connected_peers = frozenset({2})
        return []

    def held(self) -> Sequence[Sample]:
        return []

    def connected_peers(self) -> AbstractSet[int]:
        return self._connected_peers

    def close(self) -> None:
        """Do nothing."""


def test_a_failed_poll_is_counted_and_trains_continue(port: int) -> None:
    now_s, reported, sockets = GO_S, CollectingSink(), Flaky()
    peer_polls = ConnectedPeersSource(sockets)
    prober = Prober(node=0, peers=HERE, size_bytes=64, every_s=0.5, port=port, connected_peers=sockets.connected_peers)
    others = [Prober(node=node, peers=HERE, size_bytes=64, port=port) for node in (1, 2)]
    clock = RecorderClock(now_s=lambda: now_s, steady_s=lambda: now_s)
    recorder = Recorder(sockets=None, sources=[peer_polls, prober], sinks=[reported], clock=clock)
    received: list[set[int]] = []  # nodes that received a train of node 0
    for poll in range(100):  # four a second
        now_s = GO_S + poll / 4
        recorder.poll()
        arrived()
        observations = [each for other in others for each in other.poll(now_s)]
        received.append({each.node for each in observations if isinstance(each.values, Probe) and each.peer == 0})
    recorder.close()
    for other in others:
        other.close()
    assert sockets.polls == pytest.approx(25.0 / POLLED_EVERY_S, abs=1)
    assert recorder.tally.failures["sockets"] == (sockets.polls + 1) // 2
    known = int(4 * POLLED_EVERY_S)  # known at the second poll; before it the neighbours are probed
    assert set().union(*received[:known]) == {1, 2}
    assert set().union(*received[known + 1 :]) == {2}
    assert sum(2 in each for each in received[known:]) == pytest.approx(len(received[known:]) / 2, abs=1)  # every 0.5 s
    assert reported.samples == []


@contextmanager
def three_probers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[list[Recorder]]:
    """Three probers as the command builds them, on a free port."""
    monkeypatch.setattr(factory, "Prober", _on(free_port()))
    made = [
        recorder_of(
            Recording(node=node, peers=HERE, probe_bytes=2048, probes_only=True, folder=folder, pid_of={0: 1}),
            started_s=GO_S,
        )
        for node in range(3)
    ]
    try:
        yield made
    finally:
        for one in made:
            one.close()


def _on(port: int) -> type[Prober]:
    class Here(Prober):
        def __init__(self, **more: object) -> None:
            super().__init__(port=port, **more)  # type: ignore[arg-type]

    return Here


def test_only_trains_are_reported_despite_connections_of_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with connection(ADDRESSES[1]), three_probers(monkeypatch, tmp_path) as probers:

        def kinds() -> set[type]:
            for one in probers:
                one.poll()
            arrived()
            return {type(observation.values) for observation in read(files()).observations}

        def files() -> dict[str, bytes]:
            return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

        wait_for(kinds, {Probe, ProbeReturned}.__le__, what="trains and replies")
    assert kinds() == {Probe, ProbeReturned}
    assert not [name for name in files() if name.startswith("tcp_")]


def test_a_prober_without_a_train_size_is_refused() -> None:
    with pytest.raises(RuleError, match="probe_bytes: expected the size of a train"):
        recorder_of(Recording(node=0, peers=Peers({"127.5.0.1": 0}), probes_only=True), started_s=GO_S)
