"""A loopback server that answers Prometheus's range selectors from given samples."""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from planner.demand.series import Series
from tests.testbed.processes import LOOPBACK


@dataclass
class StoredSeries:
    url: str
    ends_s: list[float] = field(default_factory=list)  # of the queries so far


@contextmanager
def stored_series(series: Sequence[Series]) -> Iterator[StoredSeries]:
    stored = StoredSeries(url="")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            end_s = float(form["time"][0])
            length_s = float(re.findall(r"\[(\d+)s\]$", form["query"][0])[0])
            stored.ends_s.append(end_s)
            result: list[dict[str, Any]] = [
                {
                    "metric": dict(each.labels) | {"__name__": each.name},
                    "values": [[at_s, str(value)] for at_s, value in each.samples if 0 <= end_s - at_s <= length_s],
                }
                for each in series
            ]
            data = {"resultType": "matrix", "result": [each for each in result if each["values"]]}
            body = json.dumps({"status": "success", "data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        stored.url = f"http://{LOOPBACK}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield stored
        server.shutdown()
        thread.join()
