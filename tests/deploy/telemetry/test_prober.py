"""Probes over loopback: complete trains have kernel timestamps, and all other packets are counted."""

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.telemetry.peers import Peers
from deploy.telemetry.prober import (
    DATAGRAM_BYTES,
    HEAD,
    MARK,
    MAX_BYTES,
    MAX_PER_S,
    MAX_TURNS,
    MIN_BYTES,
    PORTS,
    Prober,
    neighbours,
    train,
)
from faults.observations import Observation, Probe
from faults.readers import ParseErrors
from fleet.documents import RuleError
from tests.deploy.telemetry.loopback import ADDRESSES, HERE, arrived

SIZE_BYTES = 10_000


@pytest.fixture
def probers(port: int, tally: ParseErrors) -> Iterator[list[Prober]]:
    with ExitStack() as stack:
        made = [Prober(node=node, peers=HERE, size_bytes=SIZE_BYTES, port=port, tally=tally) for node in range(3)]
        for prober in made:
            stack.callback(prober.close)
        yield made


def reported(prober: Prober, at_s: float) -> dict[int | None, Probe]:
    arrived()
    found: list[Observation] = prober.poll(at_s)
    return {observation.peer: observation.values for observation in found if isinstance(observation.values, Probe)}


def test_each_neighbour_is_probed_in_turn_and_once_a_period(probers: list[Prober]) -> None:
    first, after, before = probers
    for at_s in (100.0, 100.25):
        first.poll(at_s)
    assert set(reported(after, 100.4)) == {0}
    assert set(reported(before, 100.4)) == {1}  # node 2 also sent a train at its poll, to the next node
    first.poll(100.5)
    assert reported(after, 100.6).get(0) is None
    assert set(reported(before, 100.6)) == {0}


def test_the_tail_time_is_measured_at_the_receiver(probers: list[Prober]) -> None:
    probers[0].poll(100.0)
    (probe,) = reported(probers[1], 100.1).values()
    assert probe.tail_s is not None
    assert 0.0 < probe.tail_s < probe.received_s - probe.sent_s


def test_trains_of_a_pair_use_several_source_ports(port: int, tally: ParseErrors) -> None:
    """A fabric that hashes ports then spreads each pair over as many paths as there are ports."""
    with ExitStack() as stack:
        sender = Prober(node=0, peers=HERE, size_bytes=64, port=port, tally=tally)
        stack.callback(sender.close)
        received = []
        for address in ADDRESSES[1:]:
            listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            listener.bind((address, port))
            listener.settimeout(0.0)
            received.append(listener)
        ports: list[set[int]] = [set(), set()]
        for turn in range(16):
            sender.poll(100.0 + turn)
            for listener, sources in zip(received, ports, strict=True):
                with suppress(BlockingIOError):
                    while True:
                        sources.add(listener.recvfrom(2048)[1][1])
    assert [len(sources) for sources in ports] == [PORTS, PORTS]


def test_a_reading_has_the_send_time_and_the_kernel_receive_time(probers: list[Prober]) -> None:
    before_s = time.time()
    probers[0].poll(100.0)
    time.sleep(0.5)  # the receiver polls late
    polled_s = time.time()
    (probe,) = reported(probers[1], 100.1).values()
    assert probe.size_bytes == SIZE_BYTES
    assert before_s - 1e-3 <= probe.sent_s <= probe.received_s <= polled_s


def test_a_train_with_a_gap_is_counted_and_the_next_one_reported(
    probers: list[Prober], port: int, tally: ParseErrors
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((ADDRESSES[1], 0))
        for number, lost in ((1, 3), (2, None)):
            datagrams = list(train(1, number, sent_s=5.0, size_bytes=SIZE_BYTES))
            for at, datagram in enumerate(datagrams):
                if at != lost:
                    sender.sendto(datagram, (ADDRESSES[0], port))
    (probe,) = reported(probers[0], 100.0).values()
    assert (probe.sent_s, probe.size_bytes) == (5.0, SIZE_BYTES)
    assert tally.counts() == {"probe: train with a gap": 1}


FORGED = [
    b"",
    MARK,
    HEAD.pack(b"otherthi", 1, 1, 0, 1, 5.0),
    HEAD.pack(MARK, 2, 1, 0, 1, 5.0),  # a node with another address
    HEAD.pack(MARK, 1, 1, 1, 1, 5.0),
    HEAD.pack(MARK, 1, 1, 0, 60_000, 5.0),
    HEAD.pack(MARK, 1, 1, 0, 1, float("nan")),
    HEAD.pack(MARK, 1, 1, 0, 1, 5.0).ljust(DATAGRAM_BYTES + 1),
]


@pytest.mark.parametrize("datagram", FORGED, ids=range(len(FORGED)))
def test_packets_that_are_no_probe_are_counted(
    datagram: bytes, probers: list[Prober], port: int, tally: ParseErrors
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((ADDRESSES[1], 0))
        sender.sendto(datagram, (ADDRESSES[0], port))
    assert reported(probers[0], 100.0) == {}
    assert tally.counts() == {"probe: unexpected packet": 1}


def test_a_neighbour_without_a_prober_causes_no_error(port: int) -> None:
    alone = Prober(node=0, peers=HERE, size_bytes=SIZE_BYTES, port=port)
    for turn in range(6):
        assert alone.poll(100.0 + turn / 2) == []
    alone.close()


def test_a_port_in_use_is_reported_immediately(probers: list[Prober], port: int) -> None:
    assert probers
    with pytest.raises(OSError, match="in use"):
        Prober(node=0, peers=HERE, size_bytes=SIZE_BYTES, port=port)


def test_neighbours_are_adjacent_in_the_ring() -> None:
    assert neighbours(0, HERE) == [1, 2]
    assert neighbours(2, HERE) == [0, 1]
    assert neighbours(0, Peers({"127.5.0.1": 0, "127.5.0.2": 1})) == [1]
    assert neighbours(0, Peers({"127.5.0.1": 0})) == []
    assert neighbours(1, Peers({"127.5.0.1": 0, "127.5.0.2": 1, "127.6.0.1": 0})) == [0]
    with pytest.raises(RuleError, match="peers' indices, got 7"):
        neighbours(7, HERE)


@given(st.integers(MIN_BYTES, MAX_BYTES), st.integers(0, 2**32 - 1))
def test_a_train_has_the_requested_size(size_bytes: int, number: int) -> None:
    datagrams = list(train(3, number, sent_s=1.5, size_bytes=size_bytes))
    assert sum(map(len, datagrams)) == size_bytes
    assert max(map(len, datagrams)) <= DATAGRAM_BYTES
    heads = [struct.unpack_from(HEAD.format, datagram) for datagram in datagrams]
    assert heads == [(MARK, 3, number, at, len(datagrams), 1.5) for at in range(len(datagrams))]


class Counting(Prober):
    """A prober that records only the destinations of its trains."""

    def __init__(self, node: int, *, connected_peers: Iterable[int], every_s: float = 0.5) -> None:
        peers = Peers({f"127.5.{at // 200}.{1 + at % 200}": at for at in range(512)})
        self.sent_to: list[int] = []
        super().__init__(
            node=node, peers=peers, size_bytes=64, every_s=every_s, port=0, connected_peers=lambda: connected_peers
        )

    def _send(self, other: int) -> None:
        self.sent_to.append(other)


def sent_to(node: int, connected_peers: Iterable[int], *, polls: int, every_s: float = 0.5) -> list[list[int]]:
    """The destinations of each poll, at four polls a second."""
    prober = Counting(node, connected_peers=connected_peers, every_s=every_s)
    each: list[list[int]] = []
    for poll in range(polls):
        prober.poll(1_795_000_000.0 + poll / 4 + 1e-3)
        each.append(prober.sent_to)
        prober.sent_to = []
    prober.close()
    return each


@pytest.mark.parametrize("count", range(1, 9))
def test_each_of_up_to_eight_peers_is_probed_five_times_in_five_seconds(count: int) -> None:
    polls = sent_to(100, range(101, 101 + count), polls=21)[1:]  # the first poll covers only one turn
    counts = Counter(other for poll in polls for other in poll)
    assert set(counts) == set(range(101, 101 + count))
    assert min(counts.values()) >= 5
    assert sum(counts.values()) <= 5 * MAX_PER_S
    assert max(map(len, polls)) <= MAX_TURNS


def test_many_peers_are_probed_equally_often() -> None:
    others = [node for node in range(512) if node != 100]
    counts = Counter(other for poll in sent_to(100, others, polls=257)[1:] for other in poll)
    assert counts == dict.fromkeys(others, 1)


@pytest.mark.parametrize("count", [2, 3, 7, 8])
def test_a_pair_has_the_same_position_in_every_poll(count: int) -> None:
    polls = sent_to(0, range(1, 1 + count), polls=200)[1:]
    job_map = {(other, poll.index(other)) for poll in polls for other in poll}
    assert len(job_map) == count


def test_with_all_to_all_traffic_a_node_receives_one_train_per_turn() -> None:
    nodes = range(8)
    polls = [sent_to(node, nodes, polls=9)[1:] for node in (*nodes,)]
    # The 8 nodes are part of a ring of 512, so each node's order starts at its next index.
    for poll in range(8):
        for place in range(2):
            targets = [polls[node][poll][place] for node in nodes if len(polls[node][poll]) > place]
            assert len(set(targets)) == len(targets)


def test_neighbours_are_probed_until_the_job_has_connections() -> None:
    connected_peers: set[int] = set()
    prober = Counting(7, connected_peers=connected_peers)
    for poll in range(4):
        prober.poll(1000.0 + poll / 4)
    assert set(prober.sent_to) == {6, 8}
    prober.sent_to.clear()
    connected_peers |= {7, 30, 9999}  # the node itself, and one without a known address
    for poll in range(4, 8):
        prober.poll(1000.0 + poll / 4)
    assert set(prober.sent_to) == {30}
    prober.close()


def test_a_clock_set_back_causes_no_burst() -> None:
    prober = Counting(7, connected_peers=range(20))
    for at_s in (1000.0, 1000.25, 500.0, 500.25, 90_000.0):
        prober.poll(at_s)
    assert len(prober.sent_to) <= 1 + 2 + 1 + 2 + 2
    prober.close()
