"""Polls of real connections in this network namespace."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.telemetry.diag import Sample
from deploy.telemetry.netlink import DiagSocket, namespace_path
from deploy.telemetry.peers import Peers
from deploy.telemetry.sockets import SocketSource
from faults.observations import Socket
from tests.deploy.telemetry.connections import connection

HERE = Peers({"127.3.0.1": 0, "127.3.0.2": 1})


@pytest.fixture
def source() -> Iterator[SocketSource]:
    made = SocketSource(node=0, peers=HERE)
    yield made
    made.close()


@pytest.fixture
def dumps(monkeypatch: pytest.MonkeyPatch) -> list[DiagSocket]:
    """A list that grows by one entry per dump."""
    counted: list[DiagSocket] = []
    dump = DiagSocket.dump

    def counting(diag: DiagSocket) -> memoryview:
        counted.append(diag)
        return dump(diag)

    monkeypatch.setattr(DiagSocket, "dump", counting)
    return counted


def one(source: SocketSource, at_s: float = 0.0) -> Socket:
    (sample,) = source.poll(at_s)
    assert sample.peers.tolist() == [1]
    return Socket(*sample.rows[0].tolist())


def test_sent_and_unread_bytes_are_reported(source: SocketSource) -> None:
    with connection("127.3.0.2") as (client, accepted):
        client.sendall(b"x" * 5000)
        first = one(source)
        assert (first.connections, first.acked_bytes, first.received_bytes) == (1, 5001, 0)  # the SYN counts
        accepted.sendall(b"y" * 700)
        second = one(source)
        assert (second.received_bytes, second.read_queue_bytes) == (700, 700)
        client.recv(700)
        assert one(source).read_queue_bytes == 0


def test_a_closed_connection_is_missing_in_the_next_poll(source: SocketSource) -> None:
    with connection("127.3.0.2") as (_client, accepted):
        one(source)
        accepted.close()
        (sample,) = source.poll(0.0)
        assert sample.peers.size == 0


def test_a_second_connection_is_counted(source: SocketSource) -> None:
    with connection("127.3.0.2"), connection("127.3.0.2"):
        assert one(source).connections == 2


def test_ipv6_connections_are_found() -> None:
    source = SocketSource(node=0, peers=Peers({"::1": 1}))
    source.poll(0.0)
    try:
        with (
            socket.create_server(("::1", 0), family=socket.AF_INET6) as server,
            socket.create_connection(server.getsockname()[:2]),
            server.accept()[0],
        ):
            found = [source.poll(0.0)[0].peers.tolist() for _ in range(2)]
    finally:
        source.close()
    assert found[-1] == [1]


def test_a_poll_between_two_dumps_equals_a_dump(source: SocketSource, dumps: list[DiagSocket]) -> None:
    with ExitStack() as stack:
        pairs = [stack.enter_context(connection("127.3.0.2")) for _ in range(70)]  # more than one query requests
        for at_s in (0.0, 0.25):
            one(source, at_s)
        before = len(dumps)
        for at, (client, accepted) in enumerate(pairs):
            client.sendall(b"x" * (at + 1))
            accepted.sendall(b"y")
        requested = one(source, 0.5)
        assert len(dumps) == before
        dumped = one(source, 9.0)
        assert len(dumps) == before + 1
    assert requested.acked_bytes == 70 + 70 * 71 // 2
    reported = ("since_sent_ms", "since_received_ms", "rto_us")  # these values change without traffic
    assert requested._replace(**dict.fromkeys(reported, 0)) == dumped._replace(**dict.fromkeys(reported, 0))


def test_a_connection_that_ends_between_two_dumps_is_removed_immediately(
    source: SocketSource, dumps: list[DiagSocket]
) -> None:
    with connection("127.3.0.2"), connection("127.3.0.2") as (_client, accepted):
        assert [one(source, at_s).connections for at_s in (0.0, 0.25, 0.5)] == [2, 2, 2]
        before = len(dumps)
        accepted.close()
        assert one(source, 0.75).connections == 1
        assert len(dumps) == before + 1
        assert [one(source, at_s).connections for at_s in (1.0, 1.25)] == [1, 1]


def test_a_connection_that_starts_between_two_dumps_is_found_by_the_next(source: SocketSource) -> None:
    with connection("127.3.0.2"):
        assert [one(source, at_s).connections for at_s in (0.0, 0.25)] == [1, 1]
        with connection("127.3.0.2"):
            assert [one(source, at_s).connections for at_s in (0.5, 1.3, 1.5)] == [1, 2, 2]


def test_a_clock_set_back_causes_a_dump(source: SocketSource, dumps: list[DiagSocket]) -> None:
    with connection("127.3.0.2"):
        for at_s in (5000.0, 5000.25, 5000.5):
            one(source, at_s)
        before = len(dumps)
        one(source, 100.0)
        assert len(dumps) == before + 1
        one(source, 100.25)
        assert len(dumps) == before + 1


def test_a_mapped_and_a_plain_address_are_one_peer(dumps: list[DiagSocket]) -> None:
    source = SocketSource(node=0, peers=HERE)
    with (
        socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.create_connection(("127.3.0.2", server.getsockname()[1]), source_address=("127.3.0.1", 0)) as client,
        server.accept()[0] as accepted,
    ):
        polls = [source.poll(at_s) for at_s in (0.0, 0.25)]
        before = len(dumps)
        client.sendall(b"x" * 400)
        accepted.sendall(b"y" * 50)
        (sample,) = source.poll(0.5)
        assert len(dumps) == before
    source.close()
    rows = [Socket(*row) for row in sample.rows.tolist()]
    assert sample.peers.tolist() == polls[0][0].peers.tolist() == [0, 1]
    assert [(row.received_bytes, row.read_queue_bytes) for row in rows] == [(400, 400), (50, 50)]


def test_samples_are_held_until_the_limit_a_request_or_a_change() -> None:
    source = SocketSource(node=0, peers=HERE, max_held=3)
    times = iter(range(100))

    def poll(*, wanted: bool = False) -> list[tuple[float, int]]:
        found = source.poll(next(times) / 100, wanted=wanted)
        return [(round(sample.at_s * 100), int(sample.rows[:, 0].sum())) for sample in found]

    with connection("127.3.0.2"), connection("127.3.0.2") as (client, accepted):
        assert [poll() for _ in range(4)] == [[(0, 2)], [], [], [(1, 2), (2, 2), (3, 2)]]
        assert [poll(), poll(wanted=True)] == [[], [(4, 2), (5, 2)]]
        poll()
        client.close()
        accepted.close()
        assert poll() == [(6, 2), (7, 1)]
        poll()
    assert [(round(sample.at_s * 100), sample.peers.tolist()) for sample in source.held()] == [(8, [1])]
    source.close()


def test_a_kernel_without_socket_queries_is_read_by_dumps(
    source: SocketSource, dumps: list[DiagSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiagSocket, "query", lambda *_, **__: False)
    with connection("127.3.0.2"):
        assert [one(source, at / 100).connections for at in range(10)] == [1] * 10
    assert len(dumps) == 10
    assert source._queries is None


def test_responses_that_overflow_the_buffer_are_discarded(source: SocketSource) -> None:
    """A small buffer loses responses; the next dump must not read the rest of them."""
    source._diag._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connection("127.3.0.2"))
        found = [poll.rows[0, 0] for at in range(8) for poll in _poll_or_none(source, at / 100)]
    assert found.count(60) == len(found) > 0


def _poll_or_none(source: SocketSource, at_s: float) -> list[Sample]:
    try:
        return source.poll(at_s)
    except OSError:  # the recorder counts the error and retries
        return []


def test_the_network_namespace_is_selected_by_process_name_or_path(tmp_path: Path) -> None:
    own = namespace_path(pid=1 << 22)
    assert own is not None
    with pytest.raises(FileNotFoundError):
        DiagSocket(own)
    assert namespace_path(name="rack1") == Path("/run/netns/rack1")
    assert namespace_path(name=str(tmp_path)) == tmp_path
    assert namespace_path() is None
