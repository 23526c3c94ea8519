"""One persistent HTTP/1.1 connection that posts bodies.

A reply is a status: its body is read within bounds and dropped.  If the server closed an idle connection, the request
is sent once more on a new one.  Every other failure is an OSError for the caller.
"""

import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

MAX_BODY_BYTES: Final = 64 * 1024


class ReplyError(OSError):
    """The reply is not HTTP/1."""


class HttpPoster:
    """Posts to one URL."""

    def __init__(self, url: str, *, path: str, headers: dict[str, str], timeout_s: float) -> None:
        parts = urlsplit(url)
        self._target = parts.path.rstrip("/") + path
        self._headers = {"Host": parts.netloc.rpartition("@")[2], "Accept-Encoding": "identity"} | headers
        host, port = parts.hostname or "", parts.port
        self._connection: HTTPConnection = (
            HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
            if parts.scheme == "https"
            else HTTPConnection(host, port, timeout=timeout_s)
        )
        head = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        self._head_bytes = len(f"POST {self._target} HTTP/1.1\r\n{head}Content-Length: \r\n\r\n".encode())

    def post(self, body: bytes) -> tuple[int, int]:
        """Return (status, bytes of the request).  Raise OSError."""
        reused = self._connection.sock is not None
        try:
            try:
                status = self._exchange(body)
            except ConnectionError:  # http.client's RemoteDisconnected is one
                if not reused:
                    raise
                self.close()
                status = self._exchange(body)
        except HTTPException as error:
            self.close()
            raise ReplyError(f"the reply is not HTTP/1: {str(error) or type(error).__name__}") from error
        except OSError:
            self.close()
            raise
        return status, self._head_bytes + len(str(len(body))) + len(body)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _exchange(self, body: bytes) -> int:
        self._connection.request("POST", self._target, body=body, headers=self._headers)
        response = self._connection.getresponse()
        if response.length is None or response.length > MAX_BODY_BYTES:  # chunked, endless or too large
            self.close()
        else:
            response.read()
        return response.status
