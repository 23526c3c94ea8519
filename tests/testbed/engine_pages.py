"""Serves the metric pages of engines whose pods run nothing: one loopback server for the addresses of all pods."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from api.schemas.target_hosts import AllowedHosts
from deploy.common.target_http import TargetTransport
from tests.testbed.processes import LOOPBACK


@dataclass
class EnginePages:
    """`requests`: the running requests by address; other addresses are not found."""

    port: int
    requests: dict[str, float] = field(default_factory=dict)

    @property
    def client(self) -> httpx.AsyncClient:
        """Return a client that reaches this server at the address of any pod."""

        async def resolve(_host: str, _port: int) -> list[str]:
            return [LOOPBACK]

        return httpx.AsyncClient(transport=TargetTransport(AllowedHosts.parse([LOOPBACK]), resolve=resolve))


@contextmanager
def engine_pages() -> Iterator[EnginePages]:
    pages = EnginePages(port=0)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests = pages.requests.get(self.headers["Host"].partition(":")[0])
            body = f'vllm:num_requests_running{{engine="0",model_name="m"}} {requests}\n'.encode()
            self.send_response(200 if requests is not None and self.path == "/metrics" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        pages.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield pages
        server.shutdown()
        thread.join()
