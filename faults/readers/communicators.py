"""Which rank of the job a member of a communicator is.

NCCL numbers ranks within each communicator.  In one as large as the job they are the job's own, by torch's order; there
it is learned which process is which rank, and then known in the smaller ones.
"""

from faults.readers.job_map import JobMap

MAX_PROCESSES = 1 << 17

Process = tuple[str, int, int]  # host, pid, GPU


class Communicators:
    """Remembers the processes of the largest communicator."""

    def __init__(self, job_map: JobMap) -> None:
        self._ranks = len(job_map.rank_node)
        self._rank_of: dict[Process, int] = {}

    def learn(self, process: Process, *, rank: int, size: int) -> None:
        """A process said to be this rank of a communicator of that size."""
        if size == self._ranks and rank < size and (process in self._rank_of or len(self._rank_of) < MAX_PROCESSES):
            self._rank_of[process] = rank

    def rank(self, process: Process) -> int | None:
        """The job's rank; None: not known."""
        return self._rank_of.get(process)
