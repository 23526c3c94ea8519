"""Admission of queued jobs by power: which jobs start on which row, within the limit of every power domain above it.

    start job j on row r  <=>  demand_j <= limit_d - running_d - held_d   for each domain d from r up to the root

`running_d` is the demand of the jobs that run below d.  `held_d` is the demand of earlier jobs that wait: jobs are
taken by priority, then by creation, and a job that waits holds its demand on every row that it could use.  Later jobs
start only with the watts beyond that, so small jobs do not starve a large one.

Running jobs stay admitted when a limit falls below their demand; no job starts there until enough of them end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from power.tree import PowerTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A power domain with the limit that is in force."""

    name: str
    parent: str | None = None
    limit_w: float | None = None  # None: not known
    rating_w: float | None = None  # no later limit is above it; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that waits."""

    name: str
    demand_w: float
    priority: int = 0
    created_at_s: float = 0.0
    rows: frozenset[str] | None = None  # that it may use; None: any
    ready: bool = True  # false: it waits for something else too, and only holds its place


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job that draws power, on one row, or on one of several when the row is not known."""

    name: str
    demand_w: float
    rows: frozenset[str]
    ends_at_s: float | None = None  # at the latest; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    job: Job
    row: str
    free_w: float  # of the row and the domains above, before the job
    limit_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A job that waits; `row` is the one with the largest headroom, None where no row can be used."""

    job: Job
    row: str | None = None
    free_w: float = 0.0
    limit_w: float = 0.0
    ahead: tuple[str, ...] = ()  # earlier jobs that hold watts where this one lacks them
    expected_at_s: float | None = None  # when enough running jobs have ended; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A job that no row can ever take: its demand is above every rating."""

    job: Job
    rating_w: float  # the largest


Decision = Admitted | Held | Rejected


def domains_of(tree: PowerTree, *, budgets_w: Mapping[str, float]) -> dict[str, Domain]:
    """Return the domains of a tree; a budget in force replaces the tree's own budget, never the rating.

    The tree's own limit is the smallest of its periods, with one side lost, because a job may run for days.
    """
    found = {}
    for name, feed in tree.hierarchy.feeds.items():
        standing = [w for p in range(tree.periods) if (w := feed.may_draw_on_one_side_w(p)) is not None]
        limit_w = min(standing, default=None)
        if name in budgets_w:
            limit_w = min(budgets_w[name], inf if feed.limit_w is None else feed.limit_w)
        found[name] = Domain(name=name, parent=feed.parent, limit_w=limit_w, rating_w=feed.limit_w)
    return found


def decide(
    domains: Mapping[str, Domain],
    rows: Iterable[str],
    *,
    running: Iterable[RunningJob],
    waiting: Iterable[Job],
    reserved_w: Mapping[str, float] | None = None,
) -> list[Decision]:
    """Decide for every job that is ready; `reserved_w` is what other loads draw, by domain."""
    return _Admission(domains, rows, running, reserved_w or {}).decide(waiting)


class _Admission:
    def __init__(
        self,
        domains: Mapping[str, Domain],
        rows: Iterable[str],
        running: Iterable[RunningJob],
        reserved_w: Mapping[str, float],
    ) -> None:
        self._domains = domains
        self._chains = {row: _chain(domains, row) for row in sorted(set(rows))}
        self._limits = {name: inf if d.limit_w is None else d.limit_w for name, d in domains.items()}
        self._free = dict(self._limits)  # after running and admitted jobs
        for name, watts in reserved_w.items():
            _take(self._free, _chain(domains, name), watts)
        self._running = tuple(running)
        for job in self._running:
            _take(self._free, self._above(job.rows), job.demand_w)
        self._open = dict(self._free)  # after jobs that hold, too
        self._holds: list[tuple[str, frozenset[str]]] = []

    def decide(self, waiting: Iterable[Job]) -> list[Decision]:
        found = []
        for job in sorted(waiting, key=lambda job: (-job.priority, job.created_at_s, job.name)):
            decision = self._of(job)
            if job.ready and decision is not None:
                found.append(decision)
        return found

    def _of(self, job: Job) -> Decision | None:
        allowed = [row for row in self._chains if job.rows is None or row in job.rows]
        usable = [row for row in allowed if self._room(self._limits, row) < inf]  # a row without a limit is none
        possible = [row for row in usable if job.demand_w <= self._rating_w(row)]
        if not possible:
            ratings = [self._rating_w(row) for row in allowed]
            never = bool(usable) and max(ratings) < inf
            return Rejected(job=job, rating_w=max(ratings)) if never else Held(job=job)
        row = max(possible, key=lambda row: self._room(self._open, row))
        free_w, limit_w = self._room(self._free, row), self._room(self._limits, row)
        if job.ready and job.demand_w <= self._room(self._open, row):
            for ledger in (self._free, self._open):
                _take(ledger, self._chains[row], job.demand_w)
            return Admitted(job=job, row=row, free_w=free_w, limit_w=limit_w)
        short = {name for name in self._chains[row] if self._open[name] < job.demand_w}
        held = Held(
            job=job,
            row=row,
            free_w=free_w,
            limit_w=limit_w,
            ahead=tuple(name for name, domains in self._holds if domains & short),
            expected_at_s=self._expected_at_s(job, possible),
        )
        above = self._above(possible)
        _take(self._open, above, job.demand_w)
        self._holds.append((job.name, above))
        return held

    def _expected_at_s(self, job: Job, possible: Sequence[str]) -> float | None:
        """Return when enough running jobs have ended for all earlier jobs and this one."""
        open_w = dict(self._open)
        ending = [(each.ends_at_s, each) for each in self._running if each.ends_at_s is not None]
        for ends_at_s, each in sorted(ending, key=lambda entry: entry[0]):
            _take(open_w, self._above(each.rows), -each.demand_w)
            if any(job.demand_w <= self._room(open_w, row) for row in possible):
                return ends_at_s
        return None

    def _above(self, rows: Iterable[str]) -> frozenset[str]:
        """Return the domains that a job on one of these rows may draw from; an unknown row counts as every row."""
        named = set(rows)
        known = named if named <= self._chains.keys() else self._chains
        return frozenset(name for row in known for name in self._chains[row])

    def _room(self, ledger: Mapping[str, float], row: str) -> float:
        return min(ledger[name] for name in self._chains[row])

    def _rating_w(self, row: str) -> float:
        ratings = (self._domains[name].rating_w for name in self._chains[row])
        return min((rating_w for rating_w in ratings if rating_w is not None), default=inf)


def _take(ledger: dict[str, float], names: Iterable[str], watts: float) -> None:
    for name in names:
        ledger[name] -= watts


def _chain(domains: Mapping[str, Domain], name: str) -> tuple[str, ...]:
    """Return a domain and all domains above."""
    found: list[str] = []
    here: str | None = name
    while here is not None:
        found.append(here)
        here = domains[here].parent
    return tuple(found)
