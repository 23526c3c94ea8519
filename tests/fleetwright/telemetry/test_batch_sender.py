"""Posts to real servers that close connections, send bodies, or send invalid HTTP."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from fleetwright.telemetry.batch_sender import HttpPoster
from tests.deploy.telemetry.servers import raw_server
from tests.testbed.waiting import PATIENCE_S


def served(answers: list[bytes]) -> Iterator[int]:
    """The statuses that a poster receives from a server that sends these responses, one per connection."""
    waiting = iter(answers)

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(next(waiting))

    with raw_server(serve) as (host, port):
        poster = HttpPoster(f"http://{host}:{port}/base", path="/x", headers={}, timeout_s=PATIENCE_S)
        with closing(poster):
            for _ in answers:
                yield poster.post(b"body")[0]


def test_a_closed_connection_is_reopened() -> None:
    assert list(served([b"HTTP/1.1 204 No Content\r\n\r\n"] * 3)) == [204] * 3


def test_short_bodies_are_read_and_long_ones_abandoned() -> None:
    short = b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbody"
    long = b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert list(served([short, long, chunked, short])) == [409, 500, 200, 409]


@pytest.mark.parametrize("response", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", bytes(100_000)])
def test_an_invalid_http_response_is_an_error(response: bytes) -> None:
    with pytest.raises(OSError, match=r"not HTTP/1|reset|closed"):
        list(served([response]))
