"""Traces by OpenTelemetry, of requests, jobs and reconciles, sent by OTLP over HTTP.

Off by default, and then nothing of OpenTelemetry is imported.  The standard variables configure it: an endpoint
(`OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) or `OTEL_TRACES_EXPORTER=otlp` turns it on,
`OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` turn it off; `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and the
others have their usual meaning.  A `traceparent` (W3C Trace Context) carries a trace from one process to the next.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

from fleet.errors import FleetwrightError

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
TRACEPARENT: Final = "traceparent"
MAX_TRACEPARENT: Final = 55  # characters, of version 00
Value = str | int | float | bool

_tracer: Any = None  # of OpenTelemetry; None: tracing is off


class TracingError(FleetwrightError):
    """Tracing is configured, but cannot start."""


class SpanKind(StrEnum):
    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"
    CONSUMER = "CONSUMER"


class Span:
    """A span in progress; every method does nothing where tracing is off."""

    def __init__(self, recorded: Any = None) -> None:
        self._recorded = recorded

    def rename(self, name: str) -> None:
        """Replace the name."""
        if self._recorded is not None:
            self._recorded.update_name(name)

    def set(self, **attributes: Value | None) -> None:
        """Set attributes; `__` in a name stands for a dot."""
        if self._recorded is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._recorded.set_attribute(name.replace("__", "."), value)

    def fail(self, description: str) -> None:
        """Mark the span as failed."""
        if self._recorded is not None:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - on use

            self._recorded.set_status(Status(StatusCode.ERROR, description))


_NOT_RECORDED: Final = Span()


def is_requested(environment: Mapping[str, str]) -> bool:
    """Check whether the variables turn tracing on."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter == "otlp" or (exporter == "" and any(environment.get(name) for name in ENDPOINTS))


@contextmanager
def tracing(service_name: str) -> Iterator[None]:
    """Trace this process during the block where the environment requests it, and send the last spans at its end."""
    global _tracer  # noqa: PLW0603 - one tracer per process, as OpenTelemetry has
    if not is_requested(os.environ) or _tracer is not None:
        yield
        return
    provider = _provider(service_name)
    _tracer = provider.get_tracer("fleetwright")
    try:
        yield
    finally:
        _tracer = None
        provider.shutdown()


@contextmanager
def span(
    name: str, *, kind: SpanKind = SpanKind.INTERNAL, parent: str | None = None, **attributes: Value | None
) -> Iterator[Span]:
    """Record the block as a span, below the remote `parent` (a traceparent) or else below the current span.

    An exception that leaves the block marks the span as failed.
    """
    if _tracer is None:
        yield _NOT_RECORDED
        return
    from opentelemetry import trace  # noqa: PLC0415 - on use

    context = _context_of(parent) if parent is not None else None
    with _tracer.start_as_current_span(name, context=context, kind=trace.SpanKind[kind.value]) as recorded:
        made = Span(recorded)
        made.set(**attributes)
        yield made


def current_traceparent() -> str | None:
    """Return the traceparent of the current span, also of a program that uses this package and traces itself."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def current_trace_id() -> str | None:
    """Return the id of the current trace, for log lines."""
    found = current_traceparent() if _tracer is not None else None
    return found.split("-")[1] if found is not None else None


class Phases:
    """Records the phases of work one after the other, each as a span below the current one."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._recorded: Any = None

    def enter(self, name: str) -> None:
        """End the phase before and begin this one; the same name goes on."""
        if _tracer is None or name == self._name:
            return
        self.end()
        self._name, self._recorded = name, _tracer.start_span(name)

    def end(self) -> None:
        if self._recorded is not None:
            self._recorded.end()
        self._name = self._recorded = None


def _context_of(traceparent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - on use

    return TraceContextTextMapPropagator().extract({TRACEPARENT: traceparent})


def _provider(service_name: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise TracingError("traces by OTEL_… need the extra `otel`: pip install 'fleetwright[otel]'") from error
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {"service.name": service_name})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
