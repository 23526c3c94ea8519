"""Chooses the job that a free worker starts next: fair between projects, then callers, then the sweeps of a caller.

The project with the fewest running jobs comes first; between equals, the one whose last start is longest ago; inside
it, the caller by the same rule; inside the caller, each sweep, and all other jobs together, by the same rule; there,
the oldest job.  A caller that queues a thousand jobs, or a sweep of ten thousand points, therefore delays another
caller's first job by one running job at most.  Pure: `starts` is the worker's own memory.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from api.store import QueuedJob

Group = tuple[str, ...]  # project; project and caller; project, caller and sweep


@dataclass(slots=True)
class Starts:
    """Remembers the order in which groups were last served."""

    count: int = 0
    last: dict[Group, int] = field(default_factory=dict)

    def add(self, job: QueuedJob) -> None:
        """Record that a job was started."""
        self.count += 1
        self.last.update(dict.fromkeys(_groups(job), self.count))

    def forget(self, queued: Iterable[QueuedJob]) -> None:
        """Drop every group that has nothing queued, so that the memory stays small."""
        waiting = {group for job in queued for group in _groups(job)}
        self.last = {group: self.last[group] for group in waiting & self.last.keys()}


def next_job(queued: Sequence[QueuedJob], *, running: Iterable[QueuedJob], starts: Starts) -> QueuedJob | None:
    """Return the job to start; None when none waits.  `queued` needs only the oldest job of each sweep or caller."""
    counts = Counter(group for job in running for group in _groups(job))

    def turn(job: QueuedJob) -> tuple[list[tuple[int, int]], str]:
        return [(counts[group], starts.last.get(group, 0)) for group in _groups(job)], job.id

    return min(queued, key=turn, default=None)


def _groups(job: QueuedJob) -> tuple[Group, Group, Group]:
    return (job.project,), (job.project, job.created_by), (job.project, job.created_by, job.parent or "")
