"""Revision r0006 moves stored results into one table and back, without a change to any of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, text

from api.store import Migrations
from api.store.engine import make_migration_engine, parse_url

HEAD = {"created_at": "2026-11-20 12:00:00+00:00", "created_by": "token:a", "request": '{"q":1}', "answer": '{"a":2}'}
PLAN = {"id": "p1", "status": "optimal", "cost_usd_per_h": 12.5}
INFEASIBLE = {"id": "p2", "status": "infeasible", "cost_usd_per_h": None}
PLACEMENT = {
    "id": "x1",
    "model": None,
    "slots": 6,
    "gpus": 2,
    "nodes": 1,
    "imbalance": 1.25,
    "bound": 1.0,
    "remote_nodes_per_token": None,
    "moved_copies": 3,
    "holds": True,
}
# Results with keys that have other names now, and the same results with today's names.
VALIDATED = '{"moves":null,"proofs":[{"verdict":{"verified":true},"workload":"chat"}],"status":"optimal"}'
VALIDATED_NOW = '{"moves":null,"proofs":[{"slo_check":{"verified":true},"workload":"chat"}],"status":"optimal"}'
SCORE = '{"congestion_verdicts":1,"ranks":128,"verdicts":3,"workload_verdicts":2}'
SCORE_NOW = '{"congestion_diagnoses":1,"diagnoses":3,"ranks":128,"workload_diagnoses":2}'
OLD: list[tuple[str, dict[str, Any]]] = [
    ("plans", PLAN),
    ("plans", {**PLAN, "id": "p3", "answer": VALIDATED}),
    ("plans", INFEASIBLE),
    ("placements", PLACEMENT),
    ("power_answers", {"id": "w1", "kind": "power plan", "summary": '{"tree":"north"}'}),
    ("power_answers", {"id": "w2", "kind": "simulation", "summary": '{"servers":8}'}),
    ("fault_answers", {"id": "f1", "kind": "simulation", "summary": '{"ranks":128}'}),
    ("fault_answers", {"id": "f2", "kind": "simulation", "summary": '{"ranks":128}', "answer": SCORE}),
]
KINDS = ["plan", "plan", "plan", "placement", "power plan", "power simulation", "fault simulation", "fault simulation"]
NOW = {"p3": VALIDATED_NOW, "f2": SCORE_NOW}


@pytest.fixture
def migrated(empty_database_url: str) -> Migrations:
    """A database of release 0.1.0 with one result of every kind, migrated to r0006."""
    migrations = Migrations(empty_database_url)
    migrations.upgrade("r0005")
    with connected(empty_database_url) as connection:
        for table, values in OLD:
            row = HEAD | values
            columns, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({marks})"), row)  # noqa: S608 - names of this file
    migrations.upgrade()
    return migrations


@contextmanager
def connected(database_url: str) -> Iterator[Connection]:
    engine = make_migration_engine(parse_url(database_url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def rows(database_url: str, table: str) -> dict[str, dict[str, Any]]:
    """Every row of a table by its id."""
    with connected(database_url) as connection:
        found = connection.execute(text(f"SELECT * FROM {table}"))  # noqa: S608 - names of this file
        return {row["id"]: dict(row) for row in found.mappings()}


@pytest.mark.usefixtures("migrated")
def test_every_result_is_a_row_of_one_table(empty_database_url: str) -> None:
    found = rows(empty_database_url, "results")
    assert {name: row["kind"] for name, row in found.items()} == {
        values["id"]: kind for (_table, values), kind in zip(OLD, KINDS, strict=True)
    }
    assert {row["request"] for row in found.values()} == {'{"q":1}'}
    assert {name: row["result"] for name, row in found.items()} == {name: NOW.get(name, '{"a":2}') for name in found}
    assert json.loads(found["p1"]["summary"]) == {"status": "optimal", "cost_usd_per_h": 12.5}
    assert json.loads(found["p2"]["summary"]) == {"status": "infeasible", "cost_usd_per_h": None}
    assert json.loads(found["x1"]["summary"]) == {name: value for name, value in PLACEMENT.items() if name != "id"}
    assert found["w2"]["summary"] == '{"servers":8}'


def test_a_downgrade_restores_the_four_tables(migrated: Migrations, empty_database_url: str) -> None:
    migrated.downgrade("r0005")
    for table, values in OLD:
        restored = rows(empty_database_url, table)[values["id"]]
        expected = {**HEAD, **values}
        assert {name: restored[name] for name in expected if name != "created_at"} == {
            name: value for name, value in expected.items() if name != "created_at"
        }
        assert str(restored["created_at"]).startswith("2026-11-20 12:00:00")
