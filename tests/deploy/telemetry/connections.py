"""Real connections on loopback."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def connection(address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection as (client socket, accepted socket)."""
    with (
        socket.create_server((address, 0)) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
        server.accept()[0] as accepted,
    ):
        yield client, accepted
