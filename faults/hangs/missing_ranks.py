"""Missing ranks: applies the wait-for graph to the job state."""

from dataclasses import dataclass

import numpy as np

from faults.hangs.stall import Stall
from faults.hangs.wait_for_graph import Memberships, Waits, wait_for
from faults.job_state import GroupProgress, JobState

PAIRWISE = "->"  # pairwise operations: each rank numbers them independently


@dataclass(frozen=True, slots=True)
class Graph:
    """The groups as rows, their names, and the result of the wait-for graph."""

    names: tuple[str, ...]
    rows: Memberships
    waits: Waits
    groups: tuple[GroupProgress, ...]

    @property
    def reporting(self) -> bool:
        """Return whether every member of every stalled group has reported."""
        return not self.waits.uncertain.any()


def graph_of(state: JobState, *, since_s: float) -> Graph | None:
    """Return the graph of reports since this time; None if no rank counts operations."""
    found = dict(_groups(state))
    if not found:
        return None
    groups = tuple(found.values())
    rows = Memberships.of([sorted(group.members) for group in groups], ranks=len(state.ranks))
    entered, finished, reported = (np.zeros(len(rows), dtype=np.int64) for _ in range(3))
    for row, (group, rank) in enumerate(zip(rows.group.tolist(), rows.rank.tolist(), strict=True)):
        seen = groups[group]
        entered[row] = seen.entered.get(rank, 0)
        finished[row] = seen.finished.get(rank, 0)
        reported[row] = seen.reported_s.get(rank, -np.inf) >= since_s
    waits = wait_for(rows, entered=entered, finished=finished, reported=reported.astype(np.bool_))
    return Graph(tuple(found), rows, waits, groups)


def waiters(graph: Graph) -> int:
    """Return the number of ranks that wait in an operation."""
    return int(graph.rows.anywhere(graph.waits.waiting).sum())


def waits_since_s(graph: Graph, stall: Stall) -> float:
    """Return when the last waiting rank called its operation, if known: no rank was missing before."""
    times_s = [
        pending.since_s
        for group in graph.groups
        for rank, pending in group.pending.items()
        if pending.since_s is not None and group.entered[rank] > group.finished.get(rank, 0)
    ]
    return max([stall.since_s, *(since for since in times_s if since <= stall.observed_until_s)])


def _groups(state: JobState) -> list[tuple[str, GroupProgress]]:
    named = [(name, group) for name, group in state.groups.items() if name and PAIRWISE not in name]
    own = any(name in state.recorded for name, _ in named)  # the job's records distinguish its groups
    whole = [] if own else [("", _everybody(state))]
    return [(name, group) for name, group in [*whole, *named] if len(group.entered) > 1]


def _everybody(state: JobState) -> GroupProgress:
    """Return all ranks as one group, by heartbeat and by record."""
    group = GroupProgress(tuple(range(len(state.ranks))))
    for index, rank in enumerate(state.ranks):
        times_s = [at for at in (rank.beat_s, rank.records_s) if at is not None]
        if times_s and rank.entered:
            group.entered[index], group.finished[index] = rank.entered, rank.finished
            group.reported_s[index] = max(times_s)
    return group
