"""Verdicts with their bundles, simulations of faults, and the state of the isolation policy."""

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision: str | None = "r0003"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "fault_verdicts",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("job", sa.String(500), nullable=False),
        sa.Column("fault", sa.String(16), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("believed_until", MOMENT, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        sa.Column("bundle_sha256", sa.String(64)),
        sa.Column("bundle", sa.LargeBinary),
        sa.PrimaryKeyConstraint("id", name="pk_fault_verdicts"),
    )
    op.create_index("ix_fault_verdicts_believed_until", "fault_verdicts", ["believed_until"])
    op.create_table(
        "fault_answers",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_fault_answers"),
    )
    op.create_table(
        "isolation",
        sa.Column("id", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("looked_at", MOMENT, nullable=False),
        sa.Column("looked_by", sa.String(200), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_isolation"),
    )


def downgrade() -> None:
    op.drop_table("isolation")
    op.drop_table("fault_answers")
    op.drop_index("ix_fault_verdicts_believed_until", "fault_verdicts")
    op.drop_table("fault_verdicts")
