"""Chooses the job that a free worker starts next: fair between projects, then between the callers of a project.

The project with the fewest running jobs comes first; between equals, the one whose last start is longest ago; inside
it, the caller by the same rule; inside the caller, the oldest job.  A caller that queues a thousand jobs therefore
delays another caller's first job by one running job at most.  Pure: `starts` is the worker's own memory.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from api.store import QueuedJob

Caller = tuple[str, str]  # project and caller


@dataclass(slots=True)
class Starts:
    """Remembers the order in which projects and callers were last served."""

    count: int = 0
    projects: dict[str, int] = field(default_factory=dict)
    callers: dict[Caller, int] = field(default_factory=dict)

    def add(self, job: QueuedJob) -> None:
        """Record that a job was started."""
        self.count += 1
        self.projects[job.project] = self.count
        self.callers[_caller(job)] = self.count

    def forget(self, queued: Sequence[QueuedJob]) -> None:
        """Drop everyone who has nothing queued, so that the memory stays small."""
        self.projects = {name: self.projects[name] for name in {job.project for job in queued} & self.projects.keys()}
        self.callers = {name: self.callers[name] for name in set(map(_caller, queued)) & self.callers.keys()}


def next_job(queued: Sequence[QueuedJob], *, running: Sequence[QueuedJob], starts: Starts) -> QueuedJob | None:
    """Return the job to start; None when none waits."""
    of_project, of_caller = Counter(job.project for job in running), Counter(map(_caller, running))

    def turn(job: QueuedJob) -> tuple[int, int, int, int, str]:
        caller = _caller(job)
        return (
            of_project[job.project],
            starts.projects.get(job.project, 0),
            of_caller[caller],
            starts.callers.get(caller, 0),
            job.id,
        )

    return min(queued, key=turn, default=None)


def _caller(job: QueuedJob) -> Caller:
    return job.project, job.created_by
