"""Replies to probes, over the loopback: both ends report the same reading, and other packets are counted."""

import math
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.telemetry.peers import Peers
from deploy.telemetry.probe_replies import MARK, MAX_PENDING, REPLY, PendingTrains, is_reply, reply_of
from deploy.telemetry.prober import HEAD, MIN_BYTES, Prober, train
from deploy.telemetry.prober import MARK as TRAIN
from faults.observations import Observation, Probe, ProbeReturned
from faults.readers import ParseErrors
from tests.deploy.telemetry.loopback import ADDRESSES, HERE, arrived

SIZE_BYTES = 10_000
TWO = Peers({address: node for node, address in enumerate(ADDRESSES[:2])})


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def prober(stack: ExitStack, node: int, port: int, tally: ParseErrors, peers: Peers = TWO) -> Prober:
    made = Prober(node=node, peers=peers, size_bytes=SIZE_BYTES, port=port, tally=tally)
    stack.callback(made.close)
    return made


def by_hand(stack: ExitStack, node: int, port: int) -> socket.socket:
    """A plain socket on the address of a node's prober."""
    made = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.bind((ADDRESSES[node], port))
    made.settimeout(0.0)
    return made


def reported(prober: Prober, at_s: float) -> list[Observation]:
    arrived()
    return prober.poll(at_s)


def received(listener: socket.socket) -> list[bytes]:
    """All received packets except trains."""
    arrived()
    found = []
    with suppress(BlockingIOError):
        while True:
            found.append(listener.recv(2048))
    return [message for message in found if not message.startswith(TRAIN)]


def test_both_ends_report_the_same_reading_of_a_train(stack: ExitStack, port: int, tally: ParseErrors) -> None:
    sender, receiver = prober(stack, 0, port, tally), prober(stack, 1, port, tally)
    sender.poll(100.0)
    (observation,) = [each for each in reported(receiver, 100.1) if isinstance(each.values, Probe)]
    (reply,) = [each for each in reported(sender, 100.2) if isinstance(each.values, ProbeReturned)]
    assert (observation.node, observation.peer, reply.node, reply.peer) == (1, 0, 0, 1)
    assert tuple(reply.values) == tuple(observation.values)
    assert (reply.at_s, tally.counts()) == (100.2, {})


def test_every_train_gets_one_reply_and_a_reply_gets_none(stack: ExitStack, port: int, tally: ParseErrors) -> None:
    sender, receiver = prober(stack, 0, port, tally), prober(stack, 1, port, tally)
    found: list[Observation] = []
    for turn in range(24):
        found += [*reported(sender, 100.0 + turn), *reported(receiver, 100.1 + turn)]
    found += reported(sender, 123.9)
    ways = [(type(each.values), each.node) for each in found]
    assert ways.count((ProbeReturned, 0)) == ways.count((Probe, 1)) == 24
    assert ways.count((ProbeReturned, 1)) == ways.count((Probe, 0)) - 1 == 23  # the last reply has not been read
    assert tally.counts() == {}


def test_only_a_complete_train_of_a_peer_gets_a_reply_and_the_reply_is_smaller(
    stack: ExitStack, port: int, tally: ParseErrors
) -> None:
    receiver, peer = prober(stack, 0, port, tally), by_hand(stack, 1, port)
    outsider = by_hand(stack, 2, port)
    whole = list(train(1, 7, sent_s=5.0, size_bytes=SIZE_BYTES))
    for datagram in whole:
        outsider.sendto(datagram, (ADDRESSES[0], port))
    for datagram in (*whole[1:], *whole[1:]):
        peer.sendto(datagram, (ADDRESSES[0], port))
    peer.sendto(HEAD.pack(TRAIN, 1, 6, 0, 1, 5.0), (ADDRESSES[0], port))  # shorter than a reply
    reported(receiver, 100.0)
    assert (received(peer), received(outsider)) == ([], [])
    for datagram in (*whole, *whole):
        peer.sendto(datagram, (ADDRESSES[0], port))
    reported(receiver, 101.0)
    (reply,) = received(peer)
    assert is_reply(reply)
    assert len(reply) < MIN_BYTES
    assert REPLY.unpack(reply)[1:5] == (0, 7, SIZE_BYTES, 5.0)


def test_a_train_with_the_own_index_gets_no_reply(stack: ExitStack, port: int, tally: ParseErrors) -> None:
    own = prober(stack, 0, port, tally)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        forger.bind((ADDRESSES[0], 0))
        for datagram in train(0, 1, sent_s=5.0, size_bytes=SIZE_BYTES):
            forger.sendto(datagram, (ADDRESSES[0], port))
    reported(own, 100.0)
    assert reported(own, 100.1) == []
    assert tally.counts() == {}


def test_a_reply_is_accepted_once_and_only_from_the_peer_of_the_train(
    stack: ExitStack, port: int, tally: ParseErrors
) -> None:
    sender = prober(stack, 0, port, tally, HERE)
    peer, other = by_hand(stack, 1, port), by_hand(stack, 2, port)
    sender.poll(100.0)
    arrived()
    _mark, _node, number, _at, _of, sent_s = HEAD.unpack_from(peer.recv(2048))
    reply = REPLY.pack(MARK, 1, number, SIZE_BYTES, sent_s, sent_s + 0.002, 0.001)
    other.sendto(reply, (ADDRESSES[0], port))  # from node 2, with the index of node 1
    other.sendto(
        REPLY.pack(MARK, 2, number, SIZE_BYTES, sent_s, 5.0, 0.1), (ADDRESSES[0], port)
    )  # no train was sent to node 2
    assert reported(sender, 100.1) == []
    assert tally.counts() == {"probe: unexpected packet": 2}
    for _ in range(2):
        peer.sendto(reply, (ADDRESSES[0], port))
    (observation,) = reported(sender, 100.2)
    assert observation == Observation(100.2, 0, ProbeReturned(SIZE_BYTES, sent_s, sent_s + 0.002, 0.001), peer=1)
    assert tally.counts() == {"probe: unexpected packet": 3}
    assert received(other) == []


def test_a_reply_that_cannot_be_sent_does_not_affect_the_reading(
    stack: ExitStack, port: int, tally: ParseErrors
) -> None:
    class UnreachablePeerProber(Prober):
        """A prober whose replies cannot be sent."""

        def __init__(self) -> None:
            super().__init__(node=0, peers=TWO, size_bytes=SIZE_BYTES, port=port, tally=tally)
            self._address_of = {0: ADDRESSES[0], 1: "203.0.113.1"}  # unreachable from a loopback address

        def _send(self, other: int) -> None:
            """Send no trains."""

    receiver, peer = UnreachablePeerProber(), by_hand(stack, 1, port)
    stack.callback(receiver.close)
    for datagram in train(1, 1, sent_s=5.0, size_bytes=SIZE_BYTES):
        peer.sendto(datagram, (ADDRESSES[0], port))
    (observation,) = reported(receiver, 100.0)
    assert isinstance(observation.values, Probe)
    assert tally.counts()["probe: reply not sent"] == 1


TRUE = Probe(SIZE_BYTES, 1_795_000_000.25, 1_795_000_000.2526, 0.0013)


def awaiting() -> PendingTrains:
    """The state after train 7 was sent to node 1."""
    awaited = PendingTrains(size_bytes=SIZE_BYTES)
    awaited.sent(1, 7, TRUE.sent_s)
    return awaited


@pytest.mark.parametrize("tail_s", [None, 0.0013])
def test_a_reply_contains_the_exact_reading(tail_s: float | None) -> None:
    reply = reply_of(1, 7, TRUE._replace(tail_s=tail_s))
    assert reply is not None
    assert awaiting().taken(reply, 1) == (1, ProbeReturned(*TRUE._replace(tail_s=tail_s)))


@pytest.mark.parametrize(
    "fields",
    [
        (2, 7, SIZE_BYTES, *TRUE[1:]),
        (1, 8, SIZE_BYTES, *TRUE[1:]),
        (1, 7, SIZE_BYTES + 1, *TRUE[1:]),
        (1, 7, SIZE_BYTES, TRUE.sent_s + 1e-6, *TRUE[2:]),
        (1, 7, SIZE_BYTES, math.nan, *TRUE[2:]),
        (1, 7, SIZE_BYTES, TRUE.sent_s, math.nan, 0.0013),
        (1, 7, SIZE_BYTES, TRUE.sent_s, math.inf, 0.0013),
        (1, 7, SIZE_BYTES, TRUE.sent_s, -1.0, 0.0013),
        (1, 7, SIZE_BYTES, TRUE.sent_s, TRUE.received_s, 0.0),
        (1, 7, SIZE_BYTES, TRUE.sent_s, TRUE.received_s, -0.1),
        (1, 7, SIZE_BYTES, TRUE.sent_s, TRUE.received_s, math.inf),
    ],
    ids=range(11),
)
def test_a_reply_to_an_unknown_train_or_with_invalid_values_is_rejected(fields: tuple[float, ...]) -> None:
    awaited, reply = awaiting(), REPLY.pack(MARK, *fields)
    assert awaited.taken(reply, 1) is None
    assert awaited.taken(REPLY.pack(MARK, 1, 7, *TRUE), 1) is not None  # the correct reply is still accepted


@pytest.mark.parametrize("of", [None, 0, 2])
def test_a_reply_from_another_address_is_rejected(of: int | None) -> None:
    assert awaiting().taken(REPLY.pack(MARK, 1, 7, *TRUE), of) is None


def test_only_the_newest_trains_of_each_peer_accept_a_reply() -> None:
    awaited = PendingTrains(size_bytes=SIZE_BYTES)
    for peer in (1, 2):
        for number in range(100):
            awaited.sent(peer, number, float(number))

    def replied(peer: int, number: int) -> bool:
        return awaited.taken(REPLY.pack(MARK, peer, number, SIZE_BYTES, float(number), 5.0, math.nan), peer) is not None

    assert [number for number in range(100) if replied(1, number)] == [*range(100 - MAX_PENDING, 100)]
    assert replied(2, 99)


class ScriptedProber(Prober):
    """A prober that receives the packets of the test."""

    def __init__(self, messages: list[tuple[bytes, str]], tally: ParseErrors) -> None:
        self._messages = messages
        super().__init__(node=0, peers=TWO, size_bytes=SIZE_BYTES, port=0, tally=tally)
        self._pending.sent(1, 7, TRUE.sent_s)

    def _send(self, other: int) -> None:
        """Send nothing."""

    def _received(self) -> Iterator[tuple[bytes, str, float]]:
        return ((message, address, TRUE.received_s) for message, address in self._messages)


replies = st.builds(
    REPLY.pack,
    st.sampled_from([MARK, TRAIN]),
    st.integers(0, 3) | st.integers(0, 2**32 - 1),
    st.sampled_from([6, 7]) | st.integers(0, 2**32 - 1),
    st.sampled_from([SIZE_BYTES]) | st.integers(0, 2**32 - 1),
    st.sampled_from([TRUE.sent_s]) | st.floats(),
    st.floats(),
    st.floats(),
)
addresses = st.sampled_from([*ADDRESSES, "10.9.9.9"])


@given(
    st.lists(st.tuples(replies | st.binary(max_size=80) | replies.map(lambda reply: reply[:-1]), addresses), max_size=6)
)
def test_arbitrary_packets_never_raise_and_never_produce_false_replies(messages: list[tuple[bytes, str]]) -> None:
    tally = ParseErrors()
    scripted = ScriptedProber(messages, tally)
    found = scripted.poll(100.0)
    scripted.close()
    returned = [each.values for each in found if isinstance(each.values, ProbeReturned)]
    assert len(returned) <= 1
    for values in returned:
        assert (values.size_bytes, values.sent_s) == (SIZE_BYTES, TRUE.sent_s)
        assert math.isfinite(values.received_s)
        assert values.tail_s is None or 0.0 < values.tail_s < math.inf
        assert any(address == ADDRESSES[1] for _message, address in messages)
    assert tally.total >= sum(is_reply(message) for message, _address in messages) - len(returned)
