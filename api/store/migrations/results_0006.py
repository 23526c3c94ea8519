"""Moves plans, placements and the results about power and faults into one table, as a part of revision r0006."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

from api.store.canonical import canonical_json

MOMENT = sa.DateTime(timezone=True)
Json = dict[str, Any]
# Old tables with a column for each value of a list: new kind -> table and the columns.
WITH_COLUMNS: dict[str, tuple[str, tuple[tuple[str, Any, bool], ...]]] = {
    "plan": ("plans", (("status", sa.String(32), False), ("cost_usd_per_h", sa.Float(), True))),
    "placement": (
        "placements",
        (
            ("model", sa.String(200), True),
            ("slots", sa.Integer(), False),
            ("gpus", sa.Integer(), False),
            ("nodes", sa.Integer(), False),
            ("imbalance", sa.Float(), False),
            ("bound", sa.Float(), False),
            ("remote_nodes_per_token", sa.Float(), True),
            ("moved_copies", sa.Integer(), True),
            ("holds", sa.Boolean(), False),
        ),
    ),
}
# Old tables with those values as JSON: new kind -> table and old kind.
WITH_SUMMARY = {
    "power plan": ("power_answers", "power plan"),
    "power simulation": ("power_answers", "simulation"),
    "fault simulation": ("fault_answers", "simulation"),
}
COMMON = ("id", "created_at", "created_by", "request")
# Names of keys inside results: of a fault simulation, and of the proofs of a plan.
SCORE = {
    "verdicts": "diagnoses",
    "congestion_verdicts": "congestion_diagnoses",
    "workload_verdicts": "workload_diagnoses",
}
PROOF = {"verdict": "slo_check"}


def upgrade_results() -> None:
    """Move the rows of four tables into one."""
    results = op.create_table(
        "results",
        sa.Column("kind", sa.String(32), nullable=False),
        *_head_columns(),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_results"),
    )
    for kind, (name, columns) in WITH_COLUMNS.items():
        old = _old_table(name, columns)
        _copy(old, results, kind=kind, summary=sa.literal("{}"))
        names = [each for each, _type, _nullable in columns]
        for row in op.get_bind().execute(sa.select(old.c.id, *(old.c[each] for each in names))).all():
            summary = canonical_json({each: getattr(row, each) for each in names})
            op.execute(sa.update(results).where(results.c.kind == kind, results.c.id == row.id).values(summary=summary))
        op.drop_table(name)
    for kind, (name, old_kind) in WITH_SUMMARY.items():
        old = _old_table(name)
        _copy(old, results, kind=kind, summary=old.c.summary, where=old.c.kind == old_kind)
    for name in dict.fromkeys(name for name, _kind in WITH_SUMMARY.values()):
        op.drop_table(name)
    _rename_keys(score=SCORE, proof=PROOF)


def downgrade_results() -> None:
    results = _results_table()
    _rename_keys(score={new: old for old, new in SCORE.items()}, proof={new: old for old, new in PROOF.items()})
    for kind, (name, columns) in WITH_COLUMNS.items():
        old = op.create_table(
            name,
            *_head_columns(),
            *(sa.Column(each, column_type, nullable=nullable) for each, column_type, nullable in columns),
            *_body_columns(),
            sa.PrimaryKeyConstraint("id", name=f"pk_{name}"),
        )
        query = sa.select(results).where(results.c.kind == kind)
        for row in op.get_bind().execute(query).all():
            shown: Mapping[str, Any] = json.loads(row.summary)
            values = {each: getattr(row, each) for each in COMMON}
            values |= {each: shown.get(each) for each, _type, _nullable in columns}
            op.execute(sa.insert(old).values(**values, answer=row.result))
    for name in dict.fromkeys(name for name, _kind in WITH_SUMMARY.values()):
        old = op.create_table(
            name,
            sa.Column("kind", sa.String(16), nullable=False),
            *_head_columns(),
            sa.Column("summary", sa.Text, nullable=False),
            *_body_columns(),
            sa.PrimaryKeyConstraint("kind", "id", name=f"pk_{name}"),
        )
        for kind, (table, old_kind) in WITH_SUMMARY.items():
            if table == name:
                names = ["kind", "id", "created_at", "created_by", "summary", "request", "answer"]
                copied = [sa.literal(old_kind), *(results.c[each] for each in (*names[1:6], "result"))]
                op.execute(sa.insert(old).from_select(names, sa.select(*copied).where(results.c.kind == kind)))
    op.drop_table("results")


def _copy(old: sa.TableClause | sa.Table, results: sa.Table, *, kind: str, summary: Any, where: Any = None) -> None:
    """Copy every row of an old table inside the database, because requests and results may be large."""
    names = ["kind", *COMMON, "summary", "result"]
    query = sa.select(sa.literal(kind), *(old.c[each] for each in COMMON), summary, old.c.answer)
    op.execute(sa.insert(results).from_select(names, query if where is None else query.where(where)))


def _rename_keys(*, score: Mapping[str, str], proof: Mapping[str, str]) -> None:
    _convert("fault simulation", holding=score, convert=lambda simulation: renamed(simulation, score))
    _convert(
        "plan",
        holding=proof,
        convert=lambda plan: {**plan, "proofs": [renamed(each, proof) for each in plan.get("proofs", [])]},
    )


def _convert(kind: str, *, holding: Mapping[str, str], convert: Callable[[Json], Json]) -> None:
    """Convert the results whose text has the first key, one by one because they may be large."""
    results = _results_table()
    of_kind = results.c.kind == kind
    found = results.c.result.contains(f'"{next(iter(holding))}":', autoescape=True)
    for name in op.get_bind().scalars(sa.select(results.c.id).where(of_kind, found)).all():
        this = of_kind & (results.c.id == name)
        result = json.loads(op.get_bind().scalars(sa.select(results.c.result).where(this)).one())
        op.execute(sa.update(results).where(this).values(result=canonical_json(convert(result))))


def renamed(found: Json, names: Mapping[str, str]) -> Json:
    return {names.get(key, key): value for key, value in found.items()}


def _head_columns() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
    )


def _body_columns() -> tuple[sa.Column[Any], ...]:
    return sa.Column("request", sa.Text, nullable=False), sa.Column("answer", sa.Text, nullable=False)


def _old_table(name: str, columns: tuple[tuple[str, Any, bool], ...] = ()) -> sa.TableClause:
    names = ("kind", "summary") if not columns else ()
    shown = [sa.column(each, column_type) for each, column_type, _nullable in columns]
    return sa.table(name, *(sa.column(each) for each in (*names, *COMMON, "answer")), *shown)


def _results_table() -> sa.TableClause:
    names = ("kind", "id", "created_by", "summary", "request")
    columns = sa.column("result", sa.Text), sa.column("created_at", MOMENT)
    return sa.table("results", *(sa.column(name) for name in names), *columns)
