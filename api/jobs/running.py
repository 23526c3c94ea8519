"""A job that a worker runs: its progress, and the context of its log lines and its trace."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from api.jobs.outcome import Finished
from api.store import JobRecord
from api.tracing import Phases, Span, SpanKind, span


@dataclass(slots=True)
class RunningJob:
    job: JobRecord
    task: asyncio.Task[None] | None = None
    execution: asyncio.Task[Finished] | None = None
    progress: tuple[str | None, float | None] = (None, None)
    stored: tuple[str | None, float | None] = (None, None)
    is_cancelled: bool = False
    is_requeued: bool = False
    phases: Phases = field(default_factory=Phases)


@contextmanager
def job_context(job: JobRecord) -> Iterator[Span]:
    """Bind the job to log lines, and record it below the span of the request that submitted it."""
    with (
        structlog.contextvars.bound_contextvars(job=job.id, kind=job.kind, request_id=job.request_id),
        span(
            f"job {job.kind}",
            kind=SpanKind.CONSUMER,
            parent=job.trace,
            fleetwright__job__id=job.id,
            fleetwright__job__kind=job.kind,
            fleetwright__job__lane=job.lane,
            fleetwright__job__attempt=job.attempts,
            fleetwright__project=job.project,
        ) as traced,
    ):
        yield traced
