"""A worker's access to its node's agent, from the environment.

FLEETWRIGHT_AGENT                   unix:/run/fleetwright/agent.sock, http://HOST:9403 or https://HOST:9403
FLEETWRIGHT_AGENT_TOKEN_FILE        the agent's secret; read for each request, so the file may be replaced
FLEETWRIGHT_AGENT_CA, _CERT, _KEY   mutual TLS: the agent's authority, and the worker's certificate
"""

import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

VARIABLE = "FLEETWRIGHT_AGENT"
REPLY_S = 5.0  # timeout of one request
MAX_BYTES = 1 << 20  # of a reply; one with 64 GPUs has 60 kB


class AgentError(Exception):
    """The agent was not reached, or refused."""


class RefusedError(AgentError):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status


class Agent(Protocol):
    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request and return its reply, a JSON object.  Raise AgentError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAccess:
    address: str
    token_file: Path | None = None
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "AgentAccess | None":
        """Return None if no agent is named.  Raise AgentError for an invalid address."""
        address = environment.get(VARIABLE, "").strip()
        if not address:
            return None

        def path(ending: str) -> Path | None:
            text = environment.get(f"{VARIABLE}_{ending}")
            return Path(text) if text else None

        access = cls(
            address=address,
            token_file=path("TOKEN_FILE"),
            authority=path("CA"),
            certificate=path("CERT"),
            key=path("KEY"),
        )
        access.check()
        return access

    def check(self) -> None:
        try:
            parts = urlsplit(self.address)
            there = bool(parts.path) if parts.scheme == "unix" else bool(parts.hostname) and parts.port != 0
            usable = there and parts.scheme in {"unix", "http", "https"}
        except ValueError:
            usable = False
        if not usable:
            raise AgentError(
                f"{VARIABLE}: expected unix:PATH, http://HOST:PORT or https://HOST:PORT, got {self.address}"
            )

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            connection = self._connection()
            try:
                connection.request(method, path, body=json.dumps(body) if body else None, headers=self._headers())
                reply = connection.getresponse()
                content = reply.read(MAX_BYTES)
            finally:
                connection.close()
            document = json.loads(content)
        except (OSError, HTTPException, ValueError) as error:
            raise AgentError(f"{self.address}: {str(error) or type(error).__name__}") from error
        if not isinstance(document, dict):
            raise AgentError(f"{self.address}: returned no JSON object")
        if reply.status != 200:
            raise RefusedError(reply.status, str(document.get("detail", reply.reason)))
        return document

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.token_file is not None:
            headers["Authorization"] = f"Bearer {self.token_file.read_text(encoding='utf-8').strip()}"
        return headers

    def _connection(self) -> HTTPConnection:
        parts = urlsplit(self.address)
        if parts.scheme == "unix":
            return _UnixConnection(parts.path)
        if parts.scheme == "http":
            return HTTPConnection(str(parts.hostname), parts.port, timeout=REPLY_S)
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return HTTPSConnection(str(parts.hostname), parts.port, timeout=REPLY_S, context=context)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=REPLY_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(REPLY_S)
        self.sock.connect(self._path)
