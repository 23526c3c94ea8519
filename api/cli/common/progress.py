"""Shows a progress bar on a terminal once work takes longer than a second, and follows a job of a service with one."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from api.schemas.jobs import Job, JobState

if TYPE_CHECKING:
    from api.client import Client
    from api.client.calls import Call

ResultT = TypeVar("ResultT")
RecordT = TypeVar("RecordT")
QUIET_S: Final = 1.0
FIRST_POLL_S: Final = 0.05
LAST_POLL_S: Final = 0.5
COLUMNS: Final = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())


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
            self._bar = self._shown.enter_context(Progress(*COLUMNS, console=self._console, transient=True))
            self._bar.add_task("", total=None)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=description, completed=done, total=total)


def record_of(client: "Client", job: Job, *, read: Callable[[str], RecordT]) -> RecordT:
    """Wait for a job, and read the result that it has stored.  Raises the problem of a job that failed."""
    finished(follow(client, job))
    return read(job.id)


def result_of(client: "Client", call: "Call[ResultT]") -> ResultT:
    """Send a call whose result only its job keeps, follow the job, and return the result."""
    from api.client.calls import reading_output, submitting  # noqa: PLC0415 - loads httpx: local commands need none

    job = finished(follow(client, client.send(submitting(call))))
    return client.send(reading_output(job, call))


def follow(client: "Client", job: Job, *, cancels: bool = True) -> Job:
    """Return the job once it has ended.  Ctrl-C cancels it, unless another caller waits for it."""
    delay_s = FIRST_POLL_S
    with LateBar() as bar:
        try:
            while not job.state.is_final:
                bar.update(description(job), job.share or 0.0, 1.0 if job.share is not None else None)
                time.sleep(delay_s)
                delay_s = min(LAST_POLL_S, delay_s * 1.5)
                job = client.get_job(job.id)
        except KeyboardInterrupt:
            if cancels:
                client.cancel_job(job.id)
            raise
    return job


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show the time of a call that has no job to follow, on a terminal once it takes longer than a second."""
    console = Console(stderr=True)
    bar = Progress(*COLUMNS, console=console, transient=True)
    bar.add_task(text, total=None)
    timer = Timer(QUIET_S, bar.start)
    if console.is_terminal:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        if bar.live.is_started:
            bar.stop()


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
