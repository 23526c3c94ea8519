"""Time to check an audit of a million entries as a job, and the entries after a checkpoint, on each database.

The entries are those of replaced targets.  `fleetwright serve` and its worker run as processes; the time counts from
the request until its response.

    python -m bench service_audit     FLEETWRIGHT_AUDIT_ENTRIES=1000000
"""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from sqlalchemy import insert, select, update

from api.client import Client
from api.store import canonical_json
from api.store.audit_chain import link_hash
from api.store.engine import make_migration_engine, parse_url
from api.store.tables import AuditHeadRow, AuditRow
from bench.harness import Row
from bench.service_traffic import UNLIMITED, fleet_services, small_plan, target
from planner import PlanRequest

ENTRIES: Final = "FLEETWRIGHT_AUDIT_ENTRIES"
LATER: Final = 10_000  # after the checkpoint
BATCH: Final = 5_000
BEGUN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def run() -> list[Row]:
    count = int(os.environ.get(ENTRIES, "1000000"))
    return [row for database in ("sqlite", "postgresql") for row in _measured(database, count)]


def _measured(database: str, count: int) -> Iterator[Row]:
    with fleet_services(database) as (start, url):
        _append(url, count)
        server = start(url, **UNLIMITED)
        with server.client() as client:
            yield _checked(client, database, f"all {count:,} entries", full=True)
            client.create_audit_checkpoint()
        server.process.stop()
        _append(url, LATER)
        with start(url, **UNLIMITED).client() as client:
            yield _checked(client, database, f"{LATER:,} entries after a checkpoint", full=False)


def _checked(client: Client, database: str, what: str, *, full: bool) -> Row:
    client.create_plan(PlanRequest.model_validate(small_plan(0)))  # the worker has started
    begun_s = time.monotonic()
    found = client.check_audit(full=full)
    took_s = time.monotonic() - begun_s
    assert found.intact, found
    return {"database": database, "check": what, "first_seq": found.checked_from_seq, "wall_s": took_s}


def _append(database_url: str, count: int) -> None:
    """Append entries without the service, which would take an hour."""
    engine = make_migration_engine(parse_url(database_url))
    with engine.begin() as connection:
        end = connection.execute(select(AuditHeadRow.seq, AuditHeadRow.hash)).one()
        linked, numbers = end.hash, iter(range(end.seq + 1, end.seq + count + 1))
        while batch := list(islice(numbers, BATCH)):
            rows = []
            for seq in batch:
                rows.append(row := _entry(seq, linked))
                linked = row["hash"]
            connection.execute(insert(AuditRow), rows)
        connection.execute(update(AuditHeadRow).values(seq=end.seq + count, hash=linked))
    engine.dispose()


def _entry(seq: int, previous: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "seq": seq,
        "at": BEGUN + timedelta(seconds=seq),
        "actor": "token:controller00",
        "action": "target.replaced",
        "subject": f"targets/t{seq % 100}",
        "request_id": f"{seq:036}",
    }
    detail = canonical_json(target(seq))
    return entry | {"detail": detail, "hash": link_hash(previous, detail_json=detail, **entry)}
