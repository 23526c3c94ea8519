"""Who waits for whom, over any number of groups: exact, and in a few passes over arrays.

A row is one rank in one group (communicator).  Of a row that reports, `entered` and `finished` count the operations
that the rank has called and has got through there.  It waits, if entered > finished, for operation

    s = finished + 1

and then for every member q of the group that has not called it: entered_q < s.  A member that does not report may have
called it or not, unless somebody has got through s: nobody can before all have come.  So a waiting row is

    blocked    some member is known not to have come,
    uncertain  all that report have come, somebody does not report and may not have,
    stuck      all have come, and yet it is not through: the bytes are missing, not a rank.

Following blocked rows from rank to rank ends at

    laggards   wanted by somebody, waiting nowhere: the root of a non-communication hang,
    stuck      groups: the root of a communication hang,
    deadlocks  ranks that wait for each other in a ring: operations called in different orders,
    silent     members of uncertain rows.  Their silence is all there is against them, so they never justify more than
               a question to somebody else (`alive`); and not even that if they can be waiting themselves, in a row
               that ends at one of the other roots (`excused`).

Each pass carries "ends at a root" one group further, so that there are as many as the longest chain of groups.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Memberships:
    """One row per rank and group, in the order of the groups; how many ranks and groups there are."""

    group: Ints
    rank: Ints
    ranks: int
    groups: int
    starts: Ints  # the first row of each group that has any
    present: Ints  # those groups

    @classmethod
    def of(cls, groups: "list[Ints] | list[list[int]] | list[tuple[int, ...]]", *, ranks: int) -> "Memberships":
        """From the ranks of each group."""
        sizes = np.array([len(members) for members in groups], dtype=np.int64)
        group = np.repeat(np.arange(len(groups), dtype=np.int64), sizes)
        rank = np.concatenate([np.asarray(members, dtype=np.int64) for members in groups] or [np.empty(0, np.int64)])
        present = np.flatnonzero(sizes)
        starts = (np.cumsum(sizes) - sizes)[present]
        return cls(group, rank, ranks, len(groups), starts, present)

    def __len__(self) -> int:
        return int(self.rank.size)

    def least(self, values: Ints, where: Flags) -> Ints:
        """The least value among a group's rows that are so; per row."""
        found = np.full(self.groups, NEVER, dtype=np.int64)
        if self.starts.size:
            found[self.present] = np.minimum.reduceat(np.where(where, values, NEVER), self.starts)
        return found[self.group]

    def most(self, values: Ints, where: Flags) -> Ints:
        """The greatest; -1 where there is none; per row."""
        found = np.full(self.groups, -1, dtype=np.int64)
        if self.starts.size:
            found[self.present] = np.maximum.reduceat(np.where(where, values, -1), self.starts)
        return found[self.group]

    def anywhere(self, rows: Flags) -> Flags:
        """Per rank: whether any of its rows is so."""
        found = np.zeros(self.ranks, dtype=np.bool_)
        found[self.rank[rows]] = True
        return found

    def in_group(self, rows: Flags) -> Flags:
        """Per row: whether any row of its group is so."""
        found = np.zeros(self.groups, dtype=np.bool_)
        found[self.group[rows]] = True
        return found[self.group]


@dataclass(frozen=True, slots=True)
class Waits:
    """The roots of a standstill, and what waits for them."""

    waiting: Flags  # per row
    blocked: Flags
    uncertain: Flags
    stuck: Flags
    missing: Ints  # ranks
    deadlocked: Ints  # ranks
    silent: Ints  # ranks whose silence is the only evidence, and that no other root excuses
    excused: Ints  # ranks that do not report and can be waiting for a root themselves
    confirmed: Ints  # of the silent: those that an independent source says are dead

    @property
    def stall(self) -> bool:
        """Whether anybody waits at all."""
        return bool(self.waiting.any())


def wait_for(
    rows: Memberships, *, entered: Ints, finished: Ints, reported: Flags, alive: NDArray[np.int8] | None = None
) -> Waits:
    """`entered`, `finished` and `heard` per row; `alive` per rank, if asked: 1 yes, 0 no, -1 not known."""
    needs = finished + 1
    waiting = reported & (entered > finished)
    blocked = waiting & (rows.least(entered, reported) < needs)
    passed = rows.most(finished, reported)
    may_lack = ~reported & (passed < rows.most(needs, waiting))
    uncertain = waiting & ~blocked & (passed < needs) & rows.in_group(~reported)
    stuck = waiting & ~blocked & ~uncertain

    wanted = rows.anywhere(reported & (entered < rows.most(needs, waiting)))
    lagging = wanted & ~rows.anywhere(waiting)
    grounded, excused = _grounded(rows, entered, needs, blocked=blocked, uncertain=uncertain, stuck=stuck, root=lagging)
    open_ended = _ends(rows, entered, needs, blocked=blocked, ends=grounded | uncertain, root=lagging)
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


def behind(rows: Memberships, waits: Waits, *, entered: Ints, finished: Ints, root: Flags) -> Flags:
    """Per rank: whether it waits, over however many others, for one of the ranks that `root` marks."""
    ends = np.zeros(len(rows), dtype=np.bool_)
    return _ends(rows, entered, finished + 1, blocked=waits.blocked, ends=ends, root=root) & ~root


def _grounded(
    rows: Memberships, entered: Ints, needs: Ints, *, blocked: Flags, uncertain: Flags, stuck: Flags, root: Flags
) -> tuple[Flags, Flags]:
    """The rows that end at a laggard or a stuck group, and the ranks that can be waiting in such a row."""
    grounded, excused = stuck, np.zeros(rows.ranks, dtype=np.bool_)
    while True:
        ends = root | rows.anywhere(grounded)
        reached = blocked & (rows.least(entered, ends[rows.rank]) < needs)
        through = uncertain & rows.in_group(excused[rows.rank])
        further = grounded | reached | through
        excusing = rows.anywhere(rows.in_group(further))
        if bool((further == grounded).all()) and bool((excusing == excused).all()):
            return grounded, excused
        grounded, excused = further, excusing


def _ends(rows: Memberships, entered: Ints, needs: Ints, *, blocked: Flags, ends: Flags, root: Flags) -> Flags:
    """Per rank: whether following its rows ends at one of `ends` or at a root."""
    while True:
        known = root | rows.anywhere(ends)
        further = ends | (blocked & (rows.least(entered, known[rows.rank]) < needs))
        if bool((further == ends).all()):
            return known
        ends = further
