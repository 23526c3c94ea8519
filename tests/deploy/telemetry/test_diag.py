"""Reading INET_DIAG dumps: every field, all message shapes, and arbitrary bytes."""

from functools import reduce

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deploy.telemetry.diag import DumpReader, Sample, samples
from deploy.telemetry.peers import Peers
from faults.observations import Observation, Socket, SocketPoll
from tests.deploy.telemetry.dumps import DumpedSocket, attribute, joined, message

PEERS = Peers({"10.0.0.1": 0, "10.0.0.2": 1, "fd00::3": 2, "10.0.0.4": 3})
BYTE = {"timer_retransmits", "backoff"}
WIDE = {"acked_bytes", "received_bytes", "busy_us", "rwnd_limited_us", "sndbuf_limited_us"}


def a_socket(seed: int) -> Socket:
    """A random socket; to draw each field with hypothesis would take seconds."""
    rng = np.random.default_rng(seed)
    most = [255 if name in BYTE else 2**52 if name in WIDE else 2**32 - 1 for name in Socket._fields]
    return Socket(*(int(rng.integers(0, top, endpoint=True)) for top in most))._replace(connections=1)


sockets = st.builds(a_socket, st.integers(0, 2**32))
entries = st.builds(
    DumpedSocket,
    address=st.sampled_from([*PEERS.node_of, "10.9.9.9", "::ffff:10.0.0.2"]),
    values=sockets,
    timer=st.just(1),
    ports=st.sampled_from([(40_000, 29_400), (40_001, 29_500), (29_500, 40_002)]),
    info_bytes=st.sampled_from([232, 240]),
)


def sample_of(dump: bytes, **given_: frozenset[int]) -> Sample:
    known, parts = DumpReader(PEERS, **given_).read(dump)
    (sample,) = samples(known, [part[None] for part in parts], times_s=[1.0], node=0)
    return sample


def expected(everything: list[DumpedSocket]) -> dict[int, Socket]:
    nodes = {**PEERS.node_of, "::ffff:10.0.0.2": 1}
    by_peer: dict[int, list[Socket]] = {}
    for one in everything:
        if one.address in nodes:
            by_peer.setdefault(nodes[one.address], []).append(one.values)
    return {peer: reduce(joined, found) for peer, found in sorted(by_peer.items())}


def sockets_by_peer(sample: Sample) -> dict[int, Socket]:
    rows = zip(sample.peers.tolist(), sample.rows.tolist(), strict=True)
    return {peer: Socket(*row) for peer, row in rows}


@given(st.lists(entries, max_size=5), st.lists(st.booleans(), min_size=5, max_size=5))
def test_every_field_of_every_socket_is_read(everything: list[DumpedSocket], marked: list[bool]) -> None:
    mark = attribute(15, b"\1\2\3\4")
    dump = b"".join(
        message(one, attributes=mark if extra else b"") for one, extra in zip(everything, marked, strict=False)
    )
    assert sockets_by_peer(sample_of(dump)) == expected(everything)


@given(st.lists(entries, max_size=4))
def test_ignored_ports_apply_to_both_ends(everything: list[DumpedSocket]) -> None:
    dump = b"".join(map(message, everything))
    kept = [one for one in everything if 29_500 not in one.ports]
    assert sockets_by_peer(sample_of(dump, ignored_ports=frozenset({29_500}))) == expected(kept)


def test_missing_fields_of_an_older_kernel_are_zero() -> None:
    values = Socket(*range(1, 20))._replace(connections=1)
    old = sockets_by_peer(sample_of(message(DumpedSocket("10.0.0.1", values, info_bytes=104))))[0]
    assert old == values._replace(
        acked_bytes=0,
        received_bytes=0,
        busy_us=0,
        rwnd_limited_us=0,
        sndbuf_limited_us=0,
        unsent_bytes=0,
        min_rtt_us=0,
    )


def test_the_count_of_other_timers_is_no_retransmission() -> None:
    values = Socket(*range(1, 20))._replace(connections=1)
    assert sockets_by_peer(sample_of(message(DumpedSocket("10.0.0.1", values, timer=4))))[0].timer_retransmits == 0


@given(st.lists(entries, min_size=1, max_size=4), st.data())
def test_a_truncated_or_overwritten_dump_never_raises(everything: list[DumpedSocket], data: st.DataObject) -> None:
    dump = bytearray(b"".join(map(message, everything)))
    for _ in range(data.draw(st.integers(0, 6))):
        dump[data.draw(st.integers(0, len(dump) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(dump[: data.draw(st.integers(0, len(dump)))])
    assert len(sample_of(cut).peers) <= len(PEERS.node_of)


@given(st.binary(max_size=600))
def test_arbitrary_bytes_never_raise(dump: bytes) -> None:
    assert sample_of(dump).rows.shape[1] == len(Socket._fields)


def test_observations_of_a_sample_start_with_the_poll() -> None:
    rows = np.arange(38, dtype=np.int64).reshape(2, 19)
    found = Sample(2.5, 7, np.array([1, 4]), rows).observations()
    assert found[0] == Observation(2.5, 7, SocketPoll(2))
    assert [(one.peer, one.values) for one in found[1:]] == [
        (1, Socket(*range(19))),
        (4, Socket(*range(19, 38))),
    ]
