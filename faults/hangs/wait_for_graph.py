"""The wait-for graph of ranks over any number of groups: exact, in a few passes over arrays.

A row is one rank in one group (communicator), and waits for operation s = finished + 1.  A waiting row is

    blocked    if a member has not called s,
    uncertain  if all reporting members have called s and a member does not report,
    stuck      if all members have called s and the row has not finished: bytes are missing, not a rank.

Following blocked rows from rank to rank ends at missing ranks, stuck groups, deadlocks or silent ranks; excused ranks
can be waiting themselves in a row that ends at one of the other roots.  Each pass carries "ends at a root" one group
further, so the number of passes is the longest chain of groups.  docs/explanation/faults/hangs.md, "Wait-for graph"
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Memberships:
    """One row per rank and group, in the order of the groups, and the numbers of ranks and groups."""

    group: Ints
    rank: Ints
    ranks: int
    groups: int
    starts: Ints  # the first row of each group with members
    present: Ints  # those groups

    @classmethod
    def of(cls, groups: "list[Ints] | list[list[int]] | list[tuple[int, ...]]", *, ranks: int) -> "Memberships":
        sizes = np.array([len(members) for members in groups], dtype=np.int64)
        group = np.repeat(np.arange(len(groups), dtype=np.int64), sizes)
        rank = np.concatenate([np.asarray(members, dtype=np.int64) for members in groups] or [np.empty(0, np.int64)])
        present = np.flatnonzero(sizes)
        starts = (np.cumsum(sizes) - sizes)[present]
        return cls(group, rank, ranks, len(groups), starts, present)

    def __len__(self) -> int:
        return int(self.rank.size)

    def least(self, values: Ints, where: Flags) -> Ints:
        """Return, per row, the minimum over the rows of its group where `where` holds."""
        found = np.full(self.groups, NEVER, dtype=np.int64)
        if self.starts.size:
            found[self.present] = np.minimum.reduceat(np.where(where, values, NEVER), self.starts)
        return found[self.group]

    def most(self, values: Ints, where: Flags) -> Ints:
        """Return, per row, the maximum over the rows of its group where `where` holds; -1 where there is none."""
        found = np.full(self.groups, -1, dtype=np.int64)
        if self.starts.size:
            found[self.present] = np.maximum.reduceat(np.where(where, values, -1), self.starts)
        return found[self.group]

    def anywhere(self, rows: Flags) -> Flags:
        """Return, per rank, whether any of its rows is flagged."""
        found = np.zeros(self.ranks, dtype=np.bool_)
        found[self.rank[rows]] = True
        return found

    def in_group(self, rows: Flags) -> Flags:
        """Return, per row, whether any row of its group is flagged."""
        found = np.zeros(self.groups, dtype=np.bool_)
        found[self.group[rows]] = True
        return found[self.group]


@dataclass(frozen=True, slots=True)
class Waits:
    """The roots of a stall, and the rows that wait."""

    waiting: Flags  # per row
    blocked: Flags
    uncertain: Flags
    stuck: Flags
    missing: Ints  # ranks
    deadlocked: Ints  # ranks
    silent: Ints  # ranks with silence as the only evidence, which no other root excuses
    excused: Ints  # ranks that do not report and can be waiting for a root themselves
    confirmed: Ints  # silent ranks that an independent source reports as dead

    @property
    def stall(self) -> bool:
        return bool(self.waiting.any())


def wait_for(
    rows: Memberships, *, entered: Ints, finished: Ints, reported: Flags, alive: NDArray[np.int8] | None = None
) -> Waits:
    """Build the graph from `entered`, `finished` and `reported` per row; `alive` per rank: 1 yes, 0 no, -1 unknown."""
    needs = finished + 1
    waiting = reported & (entered > finished)
    blocked = waiting & (rows.least(entered, reported) < needs)
    passed = rows.most(finished, reported)
    may_lack = ~reported & (passed < rows.most(needs, waiting))
    uncertain = waiting & ~blocked & (passed < needs) & rows.in_group(~reported)
    stuck = waiting & ~blocked & ~uncertain

    wanted = rows.anywhere(reported & (entered < rows.most(needs, waiting)))
    lagging = wanted & ~rows.anywhere(waiting)
    grounded, excused = _grounded(
        rows, entered, needs, reported=reported, blocked=blocked, uncertain=uncertain, stuck=stuck, root=lagging
    )
    open_ended = _ends(
        rows, entered, needs, reported=reported, blocked=blocked, ends=grounded | uncertain, root=lagging
    )
    suspects = rows.anywhere(may_lack & rows.in_group(uncertain & ~grounded)) & ~excused
    dead = np.zeros(rows.ranks, dtype=np.bool_) if alive is None else alive == 0
    return Waits(
        waiting=waiting,
        blocked=blocked,
        uncertain=uncertain,
        stuck=stuck,
        missing=np.flatnonzero(lagging),
        deadlocked=np.flatnonzero(rows.anywhere(blocked) & ~open_ended),
        silent=np.flatnonzero(suspects),
        excused=np.flatnonzero(excused & rows.anywhere(~reported)),
        confirmed=np.flatnonzero(suspects & dead),
    )


def _grounded(
    rows: Memberships,
    entered: Ints,
    needs: Ints,
    *,
    reported: Flags,
    blocked: Flags,
    uncertain: Flags,
    stuck: Flags,
    root: Flags,
) -> tuple[Flags, Flags]:
    """Return the rows that end at a missing rank or a stuck group, and the ranks that can be waiting in such a row."""
    grounded, excused = stuck, np.zeros(rows.ranks, dtype=np.bool_)
    while True:
        ends = root | rows.anywhere(grounded)
        reached = blocked & (rows.least(entered, ends[rows.rank] & reported) < needs)
        through = uncertain & rows.in_group(excused[rows.rank])
        further = grounded | reached | through
        excusing = rows.anywhere(rows.in_group(further))
        if bool((further == grounded).all()) and bool((excusing == excused).all()):
            return grounded, excused
        grounded, excused = further, excusing


def _ends(
    rows: Memberships, entered: Ints, needs: Ints, *, reported: Flags, blocked: Flags, ends: Flags, root: Flags
) -> Flags:
    """Return, per rank, whether following its rows ends at one of `ends` or at a root."""
    while True:
        known = root | rows.anywhere(ends)
        further = ends | (blocked & (rows.least(entered, known[rows.rank] & reported) < needs))
        if bool((further == ends).all()):
            return known
        ends = further
