"""Checks of the audit chain: from a checkpoint, from an anchor, whole; their speed and their memory."""

import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, update

from api.store import ChainPlace, check_chain
from api.store.audit_chain import GENESIS, link_hash
from api.store.canonical import canonical_json, sha256_hex
from api.store.engine import make_migration_engine, parse_url
from api.store.tables import AuditCheckpointRow, AuditHeadRow, AuditRow
from tests.api.store.test_audit import tamper

NOW = datetime(2026, 11, 21, 6, 0, 0, 1, tzinfo=UTC)
DETAIL = canonical_json({"cost_usd_per_h": 12.5, "status": "optimal", "text": "é" * 50})


def entries(count: int, *, forged_from: int | None = None) -> Iterator[dict[str, Any]]:
    """Make the rows of an intact chain; those of another one from a number on."""
    previous = GENESIS.hash
    for seq in range(1, count + 1):
        row = {
            "seq": seq,
            "at": NOW + timedelta(seconds=seq),
            "actor": "token:abcdefghijkl" if forged_from is None or seq < forged_from else "nobody",
            "action": "plan.created",
            "subject": f"plans/{seq}",
            "request_id": None if seq % 2 else f"request-{seq}",
        }
        previous = link_hash(previous, detail_json=DETAIL, **row)  # type: ignore[arg-type] # by name
        yield row | {"detail": DETAIL, "hash": previous}


def fill(
    database_url: str, count: int, *, checkpoints: tuple[int, ...] = (), forged_from: int | None = None
) -> list[ChainPlace]:
    """Write a chain with checkpoints, and return its places."""
    rows = list(entries(count, forged_from=forged_from))
    places = [GENESIS, *(ChainPlace(row["seq"], row["hash"]) for row in rows)]
    engine = make_migration_engine(parse_url(database_url))
    with engine.begin() as connection:
        for start in range(0, count, 10_000):
            connection.execute(insert(AuditRow), rows[start : start + 10_000])
        connection.execute(update(AuditHeadRow).values(seq=count, hash=places[-1].hash))
    engine.dispose()
    for seq in checkpoints:
        keep(database_url, places[seq])
    return places


def keep(database_url: str, place: ChainPlace) -> None:
    """Store a checkpoint."""
    engine = make_migration_engine(parse_url(database_url))
    with engine.begin() as connection:
        values = {"seq": place.seq, "hash": place.hash, "at": NOW, "made_by": "token:x"}
        connection.execute(insert(AuditCheckpointRow).values(values))
    engine.dispose()


texts = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)


@given(actor=texts, request_id=st.none() | texts, detail=st.dictionaries(texts, json_values, max_size=4))
def test_a_link_is_the_hash_of_the_canonical_json_of_all_fields(
    actor: str, request_id: str | None, detail: dict[str, Any]
) -> None:
    """The definition in ADR 2."""
    fields = {"seq": 7, "actor": actor, "action": "a.b", "subject": actor[::-1], "request_id": request_id}
    written = canonical_json(fields | {"at": NOW.isoformat(timespec="microseconds"), "detail": detail})
    linked = link_hash("f" * 64, at=NOW, detail_json=canonical_json(detail), **fields)  # type: ignore[arg-type]
    assert linked == sha256_hex("f" * 64 + written)


def test_a_check_begins_after_the_newest_checkpoint(database_url: str) -> None:
    places = fill(database_url, 30, checkpoints=(10, 20))
    tamper(database_url, "UPDATE audit SET actor = 'nobody' WHERE seq = 15")
    short, whole = check_chain(database_url), check_chain(database_url, full=True)
    assert (short.checked_from_seq, short.first_broken_seq, short.head) == (21, None, places[30])
    assert (whole.checked_from_seq, whole.first_broken_seq) == (1, 15)


def test_a_chain_that_its_owner_rewrote_contradicts_a_checkpoint_and_an_anchor(database_url: str) -> None:
    honest = [ChainPlace(row["seq"], row["hash"]) for row in entries(30)]
    fill(database_url, 30, forged_from=11)
    assert check_chain(database_url).intact
    assert check_chain(database_url, anchor=honest[19]).first_broken_seq == 20
    assert check_chain(database_url, anchor=honest[19], full=True).first_broken_seq == 20
    earlier = check_chain(database_url, anchor=honest[9])
    assert (earlier.intact, earlier.checked_from_seq) == (True, 11)
    keep(database_url, honest[19])
    assert check_chain(database_url).first_broken_seq == 20
    assert check_chain(database_url, full=True).first_broken_seq == 20


def test_a_chain_that_is_shorter_than_an_anchor_is_broken_after_its_end(database_url: str) -> None:
    places = fill(database_url, 5)
    assert check_chain(database_url, anchor=ChainPlace(9, "f" * 64)).first_broken_seq == 6
    assert check_chain(database_url, anchor=ChainPlace(9, "f" * 64), full=True).first_broken_seq == 6
    assert check_chain(database_url, anchor=places[5]).intact


def test_an_empty_chain_is_intact(database_url: str) -> None:
    assert check_chain(database_url).head == GENESIS
    assert check_chain(database_url, full=True).intact


def test_ten_thousand_entries_after_a_checkpoint_take_less_than_a_second(database_url: str) -> None:
    """Of processor time: other processes of the machine do not count."""
    fill(database_url, 30_000, checkpoints=(20_000,))
    seen: list[tuple[int, int]] = []
    started_s = time.process_time()
    found = check_chain(database_url, on_progress=lambda checked, total: seen.append((checked, total)))
    assert time.process_time() - started_s < 1.0
    assert (found.intact, found.checked_from_seq) == (True, 20_001)
    assert seen == [(5_000, 10_000), (10_000, 10_000)]


def test_the_memory_of_a_check_does_not_grow_with_the_chain(sqlite_url: str) -> None:
    fill(sqlite_url, 30_000, checkpoints=(20_000,))
    check_chain(sqlite_url)  # what the first use of the driver keeps does not count
    peaks_bytes = []
    for full in (False, True):
        tracemalloc.start()
        assert check_chain(sqlite_url, full=full).intact
        peaks_bytes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks_bytes[1] < 1.2 * peaks_bytes[0]
