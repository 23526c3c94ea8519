"""The feed of changes.  The audit is its source: every write appends an entry, in one order for all replicas.

One task of the process polls the audit for all followers, so that a hundred of them cost one query.  The newest entries
stay in memory.  A follower that is further behind reads its own pages until it arrives there.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Final

from api.jobs.results import KINDS
from api.schemas.events import ChangeEvent
from api.server.audit_query import shown_action, shown_subject
from api.server.problems import ProblemError
from api.server.projects import ProjectAccess
from api.server.settings import Settings
from api.store import ChangeRecord, DatabaseUnavailableError, Store

POLL_S: Final = 0.5
RETRY_S: Final = 2.0  # after a failure of the database
PAGE: Final = 500  # entries of one query
KEPT: Final = 2_000  # newest entries in memory
READERS: Final = 2  # followers that read their own pages at the same time
RETRY_AFTER_S: Final = "5"

# Types whose subjects every reader may read, and types whose subjects belong to a project.  All others need the scope
# `audit` or `admin`: requests, tokens, sessions, checkpoints, removals.
OF_FLEET: Final = frozenset(
    {"document", "fleet", "lease", "power-budget", "power-tree", "quarantine", "quarantine-rules", "remediation"}
)
OF_PROJECTS: Final = frozenset(
    {"diagnosis", "project", "target", *(kind.operation.replace("_", "-") for kind in KINDS)}
)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selects events: what the reader may read, and the beginnings of the wanted types (none: all types)."""

    project: ProjectAccess
    types: tuple[str, ...] = ()

    def event(self, record: ChangeRecord) -> ChangeEvent | None:
        """Return the event of an entry; None where it is not selected."""
        kind = shown_action(record.action)
        family = kind.partition(".")[0]
        if family in OF_PROJECTS:
            # The project of an entry of release 0.2.0 is unknown.
            readable = self.project.visible is None or record.project == self.project.visible
        else:
            readable = family in OF_FLEET
        if not readable or (self.types and not kind.startswith(self.types)):
            return None
        return ChangeEvent(
            id=record.seq,
            type=kind,
            subject=shown_subject(record.subject),
            at=record.at,
            project=record.project,
        )


class EventFeed:
    def __init__(self, *, store: Store, settings: Settings) -> None:
        self._store = store
        self._limit, self._limit_per_caller = settings.event_followers, settings.event_followers_per_caller
        self._followers: Counter[str] = Counter()
        self._newest: deque[ChangeRecord] = deque(maxlen=KEPT)
        self._begin, self._end = 0, 0  # the newest entries are those after `_begin`, up to `_end`
        self._changed, self._closing = asyncio.Event(), asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._readers = asyncio.Semaphore(READERS)

    @property
    def closing(self) -> bool:
        return self._closing.is_set()

    @contextmanager
    def follower(self, actor: str) -> Iterator[None]:
        """Count a follower while the block runs; 429 where there are too many."""
        if (own := self._followers[actor]) >= self._limit_per_caller:
            raise _too_many(f"{own} requests of this caller follow events on this replica", self._limit_per_caller)
        if (total := self._followers.total()) >= self._limit:
            raise _too_many(f"{total} requests follow events on this replica", self._limit)
        self._followers[actor] += 1
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._followers[actor] -= 1
            if not self._followers[actor]:
                del self._followers[actor]

    async def head(self) -> int:
        """Return the number of the newest entry."""
        async with self._store.reading(single=True) as tx:
            return await tx.audit.length()

    async def refuse_gone(self, after: int, *, head: int) -> None:
        """Raise 410 where this database has not every entry after a number."""
        async with self._store.reading(single=True) as tx:
            first = await tx.audit.first()
        if after > head:  # of the database before it was restored from a backup
            raise _gone(f"event {after} is not in this database, whose newest is {head}", head)
        if after < head and (first is None or after + 1 < first):
            raise _gone(f"the events {after + 1} to {(first or head + 1) - 1} are no longer stored", head)

    async def after(self, position: int, *, follow: bool) -> Sequence[ChangeRecord]:
        """Return the next entries after a number.  With `follow` the newest are those that the last poll found."""
        if self._begin <= position < self._end:
            found = list(islice(reversed(self._newest), self._end - position))  # their numbers have no gap
            found.reverse()
            return found
        if follow and 0 < self._end <= position:
            return ()
        async with self._readers, self._store.reading(single=True) as tx:
            return await tx.audit.changes(after_seq=position, limit=PAGE)

    async def wait(self, position: int, *, timeout_s: float) -> None:
        """Return once there are entries after a number, or the service ends, or after `timeout_s`."""
        changed = self._changed
        if self._end <= position and not self.closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), timeout_s)

    def stop(self) -> None:
        """End all followers: the process ends."""
        self._closing.set()
        self._changed.set()

    async def close(self) -> None:
        self.stop()
        if self._poller is not None:  # not cancelled: a cancelled query leaks its connection
            await asyncio.gather(self._poller, return_exceptions=True)

    async def _poll(self) -> None:
        self._newest.clear()
        self._begin = self._end = 0
        while self._followers and not self.closing:
            delay_s = POLL_S
            try:
                await self._read_newest()
            except DatabaseUnavailableError:  # followers wait
                delay_s = RETRY_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), delay_s)

    async def _read_newest(self) -> None:
        if not self._end:
            self._begin = self._end = await self.head()
            self._wake()
        found: Sequence[ChangeRecord] = ()
        while not found or len(found) == PAGE:
            async with self._store.reading(single=True) as tx:
                found = await tx.audit.changes(after_seq=self._end, limit=PAGE)
            if not found:
                return
            self._newest.extend(found)
            self._begin, self._end = self._newest[0].seq - 1, found[-1].seq
            self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _too_many(found: str, allowed: int) -> ProblemError:
    return ProblemError(
        status=HTTPStatus.TOO_MANY_REQUESTS,
        kind="too-many-followers",
        detail=f"{found}, at most {allowed} may",
        headers={"Retry-After": RETRY_AFTER_S},
    )


def _gone(found: str, head: int) -> ProblemError:
    detail = f"after: {found}; read the state again, and follow the events after {head}"
    return ProblemError(status=HTTPStatus.GONE, kind="events-gone", detail=detail)
