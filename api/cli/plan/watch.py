"""Follows the plans that a service solves: a bar for each that waits or runs, and a line for each that ends."""

import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import Progress, TaskID

from api.cli.common.console import print_line
from api.cli.common.output import Format
from api.cli.common.progress import COLUMNS, description
from api.schemas.jobs import Job, JobState

if TYPE_CHECKING:
    from api.client import Client

POLL_S: Final = 0.5
LISTED_AT_ONCE: Final = 200
KIND: Final = "plan"


class Ends:
    """Finds the jobs that have ended since the last call; the ones that had ended before the first are old."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._old = {job.id for job in jobs if job.state.is_final}

    def among(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Return the new ones, the oldest first."""
        for job in sorted(jobs, key=lambda each: each.id):
            if job.state.is_final and job.id not in self._old:
                self._old.add(job.id)
                yield job


def watch_plans(client: "Client", output: Format, *, most: int | None) -> None:
    """Print each plan as it ends, until there were `most`."""
    console = Console(stderr=True)
    ends, shown = Ends(_jobs(client)), 0
    bars = Progress(*COLUMNS, console=console, transient=True) if console.is_terminal else None
    with bars if bars is not None else nullcontext():
        tasks: dict[str, TaskID] = {}
        while True:
            jobs = _jobs(client)
            if bars is not None:
                _show(bars, tasks, jobs)
            for job in ends.among(jobs):
                print_line(job.model_dump_json() if output is Format.JSON else _line(client, job))
                shown += 1
                if shown == most:
                    return
            time.sleep(POLL_S)


def _jobs(client: "Client") -> tuple[Job, ...]:
    return client.list_jobs(kind=KIND, limit=LISTED_AT_ONCE).items


def _show(bars: Progress, tasks: dict[str, TaskID], jobs: Iterable[Job]) -> None:
    open_jobs = {job.id: job for job in jobs if not job.state.is_final}
    for job_id in tasks.keys() - open_jobs.keys():
        bars.remove_task(tasks.pop(job_id))
    for job in open_jobs.values():
        if job.id not in tasks:
            tasks[job.id] = bars.add_task("", total=None)
        text = f"{job.name or job.id}: {description(job)}"
        bars.update(tasks[job.id], description=text, completed=job.share or 0.0, total=1.0 if job.share else None)


def _line(client: "Client", job: Job) -> str:
    """Format one plan: time, id, result, name."""
    ended = f"{job.finished_at:%H:%M:%SZ}" if job.finished_at is not None else "-"
    result = job.problem.detail if job.problem is not None else job.state.value
    if job.state is JobState.SUCCEEDED:
        plan = next((each for each in client.list_plans(limit=LISTED_AT_ONCE).items if each.id == job.id), None)
        if plan is not None:
            cost = "" if plan.cost_usd_per_h is None else f" {plan.cost_usd_per_h:,.2f} $/h"
            result = f"{plan.status}{cost}"
    return " ".join(filter(None, (ended, job.id, result, f"by {job.created_by}", job.name)))
