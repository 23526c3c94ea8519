"""Shows a progress bar on a terminal once work takes longer than a second, and follows a job of a service with one."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from api.schemas.jobs import Job, JobState

if TYPE_CHECKING:
    from api.client import Client

RecordT = TypeVar("RecordT")
QUIET_S: Final = 1.0
FIRST_POLL_S: Final = 0.05
LAST_POLL_S: Final = 0.5


class LateBar:
    """A bar on stderr, in a `with` block; none where stderr is no terminal or the block is short."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._begun_s = time.monotonic()
        self._shown = ExitStack()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()

    def update(self, description: str, done: float, total: float | None) -> None:
        """Show what is done of the total; None: the total is unknown."""
        if self._bar is None and self._console.is_terminal and time.monotonic() - self._begun_s > QUIET_S:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = self._shown.enter_context(Progress(*columns, console=self._console, transient=True))
            self._bar.add_task("", total=None)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=description, completed=done, total=total)


def record_of(client: "Client", job: Job, *, read: Callable[[str], RecordT]) -> RecordT:
    """Wait for a job, and read the result that it has stored.  Raises the problem of a job that failed."""
    finished(follow(client, job))
    return read(job.id)


def follow(client: "Client", job: Job) -> Job:
    """Return the job once it has ended.  Ctrl-C cancels it."""
    delay_s = FIRST_POLL_S
    with LateBar() as bar:
        try:
            while not job.state.is_final:
                bar.update(description(job), job.share or 0.0, 1.0 if job.share is not None else None)
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
    if job.state in (JobState.RUNNING, JobState.WAITING):
        return job.phase or job.state.value
    return job.state.value
