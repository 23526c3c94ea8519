"""One connection that stays open, and posts bodies: HTTP/1.1 as far as a watcher's answers need it, for little CPU.

The request's head is made once.  An answer is a status; its body is read and forgotten, within bounds.  A connection
that the other side closed while it lay idle is opened anew, once; any other trouble is the caller's.
"""

import contextlib
import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

MAX_HEAD_BYTES: Final = 16 * 1024
MAX_BODY_BYTES: Final = 64 * 1024
MAX_DIGITS: Final = 12  # of a body's length
_NO_BODY: Final = frozenset({204, 304})


class AnswerError(OSError):
    """What came back is no answer of HTTP/1."""


class Poster:
    """Posts to one URL.  `head_bytes` is what a request costs beside its body."""

    def __init__(self, url: str, *, path: str, headers: dict[str, str], timeout_s: float) -> None:
        self._parts = urlsplit(url)
        self._timeout_s = timeout_s
        target = self._parts.path.rstrip("/") + path
        lines = [f"POST {target} HTTP/1.1", f"Host: {self._parts.netloc.rpartition('@')[2]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._head = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")
        self._socket: socket.socket | None = None

    def post(self, body: bytes) -> tuple[int, int]:
        """(status, bytes of the request).  Raises OSError."""
        request = b"%s%d\r\n\r\n%s" % (self._head, len(body), body)
        try:
            return self._exchange(request), len(request)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, request: bytes) -> int:
        if self._socket is not None:
            with contextlib.suppress(ConnectionError):
                self._socket.sendall(request)
                if first := self._socket.recv(MAX_HEAD_BYTES):
                    return self._answer(self._socket, first)
            self.close()
        self._socket = connection = self._connect()
        connection.sendall(request)
        return self._answer(connection, connection.recv(MAX_HEAD_BYTES))

    def _answer(self, connection: socket.socket, begun: bytes) -> int:
        while b"\r\n\r\n" not in begun:
            more = connection.recv(MAX_HEAD_BYTES)
            if not more or len(begun) + len(more) > MAX_HEAD_BYTES + MAX_BODY_BYTES:
                raise AnswerError("the answer is cut off, or larger than any we know")
            begun += more
        head, _, rest = begun.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        if not first.startswith(b"HTTP/1.") or not first[9:12].isdigit():
            raise AnswerError("the answer is not HTTP/1")
        status = int(first[9:12])
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        length = b"0" if status in _NO_BODY else fields.get(b"content-length", b"")
        stays = first.startswith(b"HTTP/1.1") and fields.get(b"connection", b"").lower() != b"close"
        known = length.isdigit() and len(length) <= MAX_DIGITS
        if not (stays and known and self._skipped(connection, int(length) - len(rest))):
            self.close()
        return status

    def _skipped(self, connection: socket.socket, left: int) -> bool:
        """Whether the rest of a body was read, so that the next answer begins at its beginning."""
        if left > MAX_BODY_BYTES:
            return False
        while left > 0 and (chunk := connection.recv(left)):
            left -= len(chunk)
        return left == 0

    def _connect(self) -> socket.socket:
        secure = self._parts.scheme == "https"
        host = self._parts.hostname or ""
        made = socket.create_connection((host, self._parts.port or (443 if secure else 80)), self._timeout_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ssl.create_default_context().wrap_socket(made, server_hostname=host) if secure else made
