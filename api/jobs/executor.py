"""Defines how a worker runs a job: in a process of this machine (`process`), or as a Ray task (`ray_tasks`)."""

from dataclasses import dataclass
from typing import Protocol

from api.jobs.outcome import Finished, Report, Task
from api.schemas.jobs import Lane


@dataclass(frozen=True, slots=True)
class Limits:
    """What one job may use."""

    memory_mib: int
    deadline_s: float
    lane: Lane = Lane.WORK


class Executor(Protocol):
    async def warm_up(self) -> None:
        """Prepare, so that the first job does not wait."""

    def takes(self, lane: Lane) -> bool:
        """Return whether it can run jobs of a lane now."""

    async def run(self, task: Task, *, limits: Limits, report: Report) -> Finished:
        """Run a job to its end or its limits.  Cancellation ends the job where it runs."""
