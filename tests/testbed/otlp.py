"""A receiver of traces: the OTLP/HTTP endpoint of a collector, which keeps the spans that it decodes."""

import gzip
import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.testbed.processes import LOOPBACK

EXPORTER = "opentelemetry.exporter.otlp"
needs_exporter = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.exporter") is None or importlib.util.find_spec(EXPORTER) is None,
    reason="needs the extra `otel`",
)


@dataclass(frozen=True)
class ReceivedSpan:
    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str | int | float | bool]


@dataclass
class Receiver:
    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)

    def named(self, name: str, *, service: str | None = None) -> list[ReceivedSpan]:
        return [each for each in self.spans if each.name == name and service in (None, each.service)]


@contextmanager
def receiving_traces() -> Iterator[Receiver]:
    """Receive on a free port of loopback during the block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Write no log."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        receiver.url = f"http://{LOOPBACK}:{server.server_address[1]}"
        yield receiver
        server.shutdown()
        thread.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        named = {each.key: each.value.string_value for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    service=named["service.name"],
                    name=span.name,
                    kind=span.kind,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    attributes={
                        each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
                        for each in span.attributes
                    },
                )
