"""A receiver of webhooks on a loopback port, which checks each signature by itself."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = b"a key of the tests, 16 bytes or more"


@dataclass
class Receiver:
    url: str
    attempts: list[tuple[str, bool]] = field(default_factory=list)  # id, and whether its signature is right
    events: dict[str, Any] = field(default_factory=dict)  # by id: a repetition has no effect
    status: int = 200

    def states(self) -> list[str]:
        return [
            f"{each['data']['node'] or each['data']['switch']} {each['data']['state']}" for each in self.events.values()
        ]


@contextmanager
def webhook_receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            name, at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
            digest = hmac.new(KEY, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
            is_right = self.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
            receiver.attempts.append((name, is_right))
            if receiver.status == 200:
                receiver.events.setdefault(name, json.loads(body))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/hook")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
