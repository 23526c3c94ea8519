"""Posts to real servers that close connections, send bodies, or send no HTTP."""

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from fleetwright.telemetry.batch_sender import HttpPoster
from tests.deploy.telemetry.servers import raw_server
from tests.testbed.waiting import PATIENCE_S


def served(answers: list[bytes]) -> Iterator[int]:
    """Statuses that a poster sees of a server that says these, a connection each."""
    waiting = iter(answers)

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(next(waiting))

    with raw_server(serve) as (host, port):
        poster = HttpPoster(f"http://{host}:{port}/base", path="/x", headers={}, timeout_s=PATIENCE_S)
        with closing(poster):
            for _ in answers:
                yield poster.post(b"body")[0]


def test_a_connection_that_was_closed_is_opened_anew() -> None:
    assert list(served([b"HTTP/1.1 204 No Content\r\n\r\n"] * 3)) == [204] * 3


def test_a_body_is_read_past_and_an_endless_one_left() -> None:
    short = b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbody"
    long = b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert list(served([short, long, chunked, short])) == [409, 500, 200, 409]


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", bytes(100_000)])
def test_what_is_no_answer_is_an_error(said: bytes) -> None:
    with pytest.raises(OSError, match=r"not HTTP/1|reset|closed"):
        list(served([said]))
