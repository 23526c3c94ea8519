"""Looking at real connections of this namespace."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.recorder.netlink import DiagSocket, namespace_path
from deploy.recorder.peers import Peers
from deploy.recorder.sockets import SocketSource
from faults.observations import Socket
from tests.deploy.recorder.connections import connection

HERE = Peers({"127.3.0.1": 0, "127.3.0.2": 1})


@pytest.fixture
def source() -> Iterator[SocketSource]:
    made = SocketSource(node=0, peers=HERE)
    yield made
    made.close()


def one(source: SocketSource) -> Socket:
    sample = source.look(0.0)
    assert sample.peers.tolist() == [1]
    return Socket(*sample.rows[0].tolist())


def test_what_was_sent_and_not_read(source: SocketSource) -> None:
    with connection("127.3.0.2") as (client, accepted):
        client.sendall(b"x" * 5000)
        first = one(source)
        assert (first.connections, first.acked_bytes, first.received_bytes) == (1, 5001, 0)  # the SYN counts
        accepted.sendall(b"y" * 700)
        second = one(source)
        assert (second.received_bytes, second.read_queue_bytes) == (700, 700)
        client.recv(700)
        assert one(source).read_queue_bytes == 0


def test_a_closed_connection_is_gone_at_the_next_look(source: SocketSource) -> None:
    with connection("127.3.0.2") as (_client, accepted):
        one(source)
        accepted.close()
        assert source.look(0.0).peers.size == 0


def test_a_second_connection_is_counted(source: SocketSource) -> None:
    with connection("127.3.0.2"), connection("127.3.0.2"):
        assert one(source).connections == 2


def test_ipv6_is_found_in_every_look() -> None:
    source = SocketSource(node=0, peers=Peers({"::1": 1}))
    source.look(0.0)
    try:
        with (
            socket.create_server(("::1", 0), family=socket.AF_INET6) as server,
            socket.create_connection(server.getsockname()[:2]),
            server.accept()[0],
        ):
            found = [source.look(0.0).peers.tolist() for _ in range(2)]
    finally:
        source.close()
    assert found[-1] == [1]


def test_the_namespace_of_a_process_can_be_entered(tmp_path: Path) -> None:
    own = namespace_path(pid=1 << 22)
    assert own is not None
    with pytest.raises(FileNotFoundError):
        DiagSocket(own)
    assert namespace_path(name="rack1") == Path("/run/netns/rack1")
    assert namespace_path(name=str(tmp_path)) == tmp_path
    assert namespace_path() is None
