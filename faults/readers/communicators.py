"""Maps members of a communicator to ranks of the job.

NCCL numbers ranks within each communicator.  In a communicator as large as the job they are the job's own, by torch's
order.  There the reader learns the process of each rank, and recognises it in smaller ones.
"""

from faults.readers.job_map import JobMap

MAX_PROCESSES = 1 << 17

Process = tuple[str, int, int]  # host, pid, GPU


class Communicators:
    def __init__(self, job_map: JobMap) -> None:
        self._ranks = len(job_map.rank_node)
        self._rank_of: dict[Process, int] = {}

    def learn(self, process: Process, *, rank: int, size: int) -> None:
        """Record the process of this rank in a communicator of that size."""
        if size == self._ranks and rank < size and (process in self._rank_of or len(self._rank_of) < MAX_PROCESSES):
            self._rank_of[process] = rank

    def rank(self, process: Process) -> int | None:
        """Return the job's rank; None if unknown."""
        return self._rank_of.get(process)
