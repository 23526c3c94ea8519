"""Verifies the audit chain in constant memory, for `fleetwright audit check`, backups and restores.

`check_chain` has its own connection and blocks: it runs in a process or thread of its own.  It starts at an anchor that
the operator kept elsewhere, else at the newest checkpoint, else at the first entry.  A checkpoint is a place up to
which an earlier check found the chain intact; it saves time, and proves nothing against an owner of the database.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Final, NamedTuple

from sqlalchemy import Connection, select

from api.store.canonical import sha256_hex
from api.store.engine import READ_ONLY, make_migration_engine, parse_url
from api.store.failures import translated_errors
from api.store.tables import AuditCheckpointRow, AuditHeadRow, AuditRow

GENESIS_HASH: Final = "0" * 64
HEAD_ID: Final = 1
BATCH: Final = 5_000
_ENTRIES: Final = AuditRow.__table__.c
ENTRY_COLUMNS: Final = (
    _ENTRIES.seq,
    _ENTRIES.at,
    _ENTRIES.actor,
    _ENTRIES.action,
    _ENTRIES.subject,
    _ENTRIES.detail,
    _ENTRIES.request_id,
    _ENTRIES.hash,
)


class ChainPlace(NamedTuple):
    """Is the end of the chain after entry `seq`."""

    seq: int
    hash: str


GENESIS: Final = ChainPlace(0, GENESIS_HASH)


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """Is the result of a check.  `head` is the last entry that was read."""

    head: ChainPlace
    checked_from_seq: int
    first_broken_seq: int | None = None

    @property
    def intact(self) -> bool:
        return self.first_broken_seq is None


def check_chain(
    database_url: str,
    *,
    full: bool = False,
    anchor: ChainPlace | None = None,
    on_progress: Callable[[int, int], None] = lambda _checked, _total: None,
) -> ChainCheck:
    """Verify the chain of a database, which may be in use; `on_progress` receives entries checked and in total."""
    engine = make_migration_engine(parse_url(database_url))
    try:
        with translated_errors(), engine.connect() as connection:
            connection.execution_options(**READ_ONLY[connection.dialect.name])
            # A transaction per batch: a long one would keep the database from reclaiming what writers replace.
            return check_connection(
                connection, full=full, anchor=anchor, on_progress=on_progress, after_batch=connection.rollback
            )
    finally:
        engine.dispose()


def check_connection(
    connection: Connection,
    *,
    full: bool = False,
    anchor: ChainPlace | None = None,
    on_progress: Callable[[int, int], None] = lambda _checked, _total: None,
    after_batch: Callable[[], None] = lambda: None,
) -> ChainCheck:
    """Verify the chain over a connection.  Entries may be appended meanwhile, but none may be missing."""
    head = _head(connection)
    known = _known_places(connection, anchor)
    first = GENESIS if full else (anchor or max(known, default=GENESIS))
    if (stored := _hash_at(connection, first.seq)) != first.hash:
        broken_seq = first.seq if stored is not None else min(first.seq, head.seq + 1)
        return ChainCheck(head=head, checked_from_seq=first.seq + 1, first_broken_seq=broken_seq)
    expected = {place.seq: place.hash for place in known if place.seq > first.seq}
    seq, previous, hash_at_head = first.seq, first.hash, first.hash if first.seq == head.seq else None
    query = select(*ENTRY_COLUMNS).order_by(_ENTRIES.seq).limit(BATCH)
    while rows := connection.execute(query.where(_ENTRIES.seq > seq)).all():
        after_batch()
        for stored_seq, at, actor, action, subject, detail, request_id, stored_hash in rows:
            seq += 1
            computed = link_hash(
                previous,
                seq=seq,
                at=at,
                actor=actor,
                action=action,
                subject=subject,
                detail_json=detail,
                request_id=request_id,
            )
            if stored_seq != seq or stored_hash != computed or expected.get(seq, computed) != computed:
                return ChainCheck(head=head, checked_from_seq=first.seq + 1, first_broken_seq=seq)
            previous = computed
            if seq == head.seq:
                hash_at_head = computed
        on_progress(seq - first.seq, max(head.seq, seq) - first.seq)
    last = ChainPlace(seq, previous)
    is_whole = hash_at_head == head.hash and _head(connection).seq >= seq and not expected.keys() - range(seq + 1)
    return ChainCheck(head=last, checked_from_seq=first.seq + 1, first_broken_seq=None if is_whole else seq + 1)


def link_hash(
    previous: str,
    *,
    seq: int,
    at: datetime,
    actor: str,
    action: str,
    subject: str,
    detail_json: str,
    request_id: str | None,
) -> str:
    """Hash the previous hash and every field of an entry with SHA-256: the canonical JSON of the fields."""
    text = encode_basestring_ascii
    return sha256_hex(
        f'{previous}{{"action":{text(action)},"actor":{text(actor)},"at":"{at.isoformat(timespec="microseconds")}",'
        f'"detail":{detail_json},"request_id":{text(request_id) if request_id is not None else "null"},'
        f'"seq":{seq},"subject":{text(subject)}}}'
    )


def _head(connection: Connection) -> ChainPlace:
    row = connection.execute(select(AuditHeadRow.seq, AuditHeadRow.hash).where(AuditHeadRow.id == HEAD_ID)).one()
    return ChainPlace(row.seq, row.hash)


def _known_places(connection: Connection, anchor: ChainPlace | None) -> list[ChainPlace]:
    stored = connection.execute(select(AuditCheckpointRow.seq, AuditCheckpointRow.hash)).all()
    found = [ChainPlace(row.seq, row.hash) for row in stored]
    return [*found, anchor] if anchor is not None else found


def _hash_at(connection: Connection, seq: int) -> str | None:
    """Return the stored hash of an entry; that of the beginning for none."""
    if seq == 0:
        return GENESIS_HASH
    return connection.execute(select(_ENTRIES.hash).where(_ENTRIES.seq == seq)).scalar_one_or_none()
