"""The first tables, and triggers that make the audit append-only."""

import sqlalchemy as sa
from alembic import op

from api.store.audit_chain import GENESIS_HASH, HEAD_ID

revision = "r0001"
down_revision: str | None = None

REFUSED = ("UPDATE", "DELETE")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("version", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("body", sa.Text),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "version", name="pk_documents"),
    )
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("request_id", sa.String(64)),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
    )
    audit_head = op.create_table(
        "audit_head",
        sa.Column("id", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
    )
    op.bulk_insert(audit_head, [{"id": HEAD_ID, "seq": 0, "hash": GENESIS_HASH}])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("name", sa.String(500), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(32), nullable=False),
        sa.Column("scopes", sa.String(100), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("expires_at", MOMENT),
        sa.Column("revoked_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_table(
        "plans",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("cost_usd_per_h", sa.Float),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_table(
        "target_status",
        sa.Column("target", sa.String(63), nullable=False),
        sa.Column("reported_at", MOMENT, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("target", name="pk_target_status"),
    )
    op.create_table(
        "replies",
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("actor", "key", name="pk_replies"),
    )
    op.create_index("ix_replies_expires_at", "replies", ["expires_at"])
    _forbid_rewriting("audit")


def downgrade() -> None:
    _allow_rewriting("audit")
    for table in ("replies", "target_status", "plans", "tokens", "audit_head", "audit", "documents"):
        op.drop_table(table)


def _forbid_rewriting(table: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{table} is append-only'; END $$"
        )
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()"
        )
        return
    for verb in REFUSED:
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )


def _allow_rewriting(table: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
        op.execute(f"DROP FUNCTION {table}_refuse()")
        return
    for verb in REFUSED:
        op.execute(f"DROP TRIGGER {table}_no_{verb.lower()}")
