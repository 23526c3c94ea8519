"""Records refused requests, and with `audit_level=reads` every read, in the audit.

A request only adds to a bounded list in memory.  Once a second one transaction appends the list to the chain.  Equal
requests of one second become one entry with a count, so that a caller cannot fill the audit by repeating itself.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

import structlog

from api.server.settings import AuditLevel
from api.store import NewAuditEntry, Store, StoreError

ROUND_S: Final = 1.0
MAX_PENDING: Final = 1_000  # different entries; more of one round are only counted
MAX_SUBJECT: Final = 200
REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
READS: Final = frozenset({HTTPStatus.OK, HTTPStatus.NOT_MODIFIED})
SYSTEM: Final = "system:"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Describes a request that was answered."""

    actor: str | None  # None: no token was accepted
    address: str
    method: str
    route: str
    path: str
    status: int
    request_id: str | None


@dataclass(slots=True)
class _Group:
    first: Access
    at: datetime
    count: int = 0


class AccessAudit:
    def __init__(self, *, store: Store, level: AuditLevel, now: Callable[[], datetime]) -> None:
        self._store, self._level, self._now = store, level, now
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._dropped = 0
        self._fails = False

    def observe(self, access: Access) -> None:
        """Note a request if the level demands it; never waits."""
        if access.status in REFUSALS and self._level is not AuditLevel.WRITES:
            # Without the path, so that a caller that guesses paths adds one entry.
            key: tuple[object, ...] = (access.actor or access.address, access.method, access.route, access.status)
        elif self._level is AuditLevel.READS and _is_read(access):
            key = (access.actor, access.path)
        else:
            return
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MAX_PENDING:
                self._dropped += 1
                return
            group = self._groups[key] = _Group(access, self._now())
        group.count += 1

    async def run(self, *, stopped_within: Callable[[float], Awaitable[bool]]) -> None:
        """Append once a second, and a last time at the end."""
        stopped = False
        while not stopped:
            stopped = await stopped_within(ROUND_S)
            try:
                await self.append()
            except StoreError as error:
                if not self._fails:
                    log.warning("access_not_audited", reason=str(error))
                self._fails = True
            else:
                self._fails = False

    async def append(self) -> None:
        """Append what was noted to the chain; it stays noted where that fails."""
        if not self._groups and not self._dropped:
            return
        groups, dropped = dict(self._groups), self._dropped
        entries = [_entry(group) for group in groups.values()]
        if dropped:
            entries.append(
                NewAuditEntry(
                    at=self._now(), actor="system:audit", action="request.not-recorded", detail={"count": dropped}
                )
            )
        counts = {key: group.count for key, group in groups.items()}
        async with self._store.transaction() as tx:
            await tx.audit.append_all(entries)
        self._dropped -= dropped
        for key, count in counts.items():
            if self._groups[key].count == count:
                del self._groups[key]
            else:  # repeated during the transaction
                self._groups[key].count -= count


def _is_read(access: Access) -> bool:
    return (
        access.method in {"GET", "HEAD"}
        and access.status in READS
        and access.path.startswith("/v1/")
        and not (access.actor or "").startswith(SYSTEM)
    )


def _entry(group: _Group) -> NewAuditEntry:
    first = group.first
    refused = first.status in REFUSALS
    return NewAuditEntry(
        at=group.at,
        actor=first.actor or f"address:{first.address}",
        action="request.refused" if refused else "request.read",
        subject=first.path[:MAX_SUBJECT],
        detail={
            "method": first.method,
            "route": first.route,
            "status": first.status,
            "address": first.address,
            "count": group.count,
        },
        request_id=first.request_id,
    )
