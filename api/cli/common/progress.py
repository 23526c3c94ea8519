"""Follows a job of a service, with a progress bar on a terminal once it takes longer than a second."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from api.schemas.jobs import Job, JobState

if TYPE_CHECKING:
    from api.client import Client

RecordT = TypeVar("RecordT")
QUIET_S: Final = 1.0
FIRST_POLL_S: Final = 0.05
LAST_POLL_S: Final = 0.5


def record_of(client: "Client", job: Job, *, read: Callable[[str], RecordT]) -> RecordT:
    """Wait for a job, and read the result that it has stored.  Raises the problem of a job that failed."""
    finished(follow(client, job))
    return read(job.id)


def follow(client: "Client", job: Job) -> Job:
    """Return the job once it has ended.  Ctrl-C cancels it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    begun_s, delay_s = time.monotonic(), FIRST_POLL_S
    with ExitStack() as shown:
        bar: Progress | None = None
        try:
            while not job.state.is_final:
                if bar is None and console.is_terminal and time.monotonic() - begun_s > QUIET_S:
                    bar = shown.enter_context(Progress(*columns, console=console, transient=True))
                    bar.add_task("", total=None)
                if bar is not None:
                    bar.update(
                        bar.task_ids[0], description=description(job), completed=job.share or 0.0, total=_total(job)
                    )
                time.sleep(delay_s)
                delay_s = min(LAST_POLL_S, delay_s * 1.5)
                job = client.get_job(job.id)
        except KeyboardInterrupt:
            client.cancel_job(job.id)
            raise
    return job


def finished(job: Job) -> Job:
    """Return a job that succeeded; raise the problem of any other."""
    if job.problem is not None:
        from api.client.errors import error_of  # noqa: PLC0415 - loads httpx, which local commands do not need

        raise error_of(job.problem, call=f"job {job.id}")
    return job


def description(job: Job) -> str:
    """Describe what a job does now."""
    if job.state is JobState.QUEUED:
        return f"queued behind {job.position}" if job.position else "queued"
    if job.state is JobState.RUNNING:
        return job.phase or "running"
    return job.state.value


def _total(job: Job) -> float | None:
    return 1.0 if job.share is not None else None
