"""Placements of experts, immutable as plans are."""

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision: str | None = "r0001"


def upgrade() -> None:
    op.create_table(
        "placements",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("model", sa.String(200)),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("imbalance", sa.Float, nullable=False),
        sa.Column("bound", sa.Float, nullable=False),
        sa.Column("remote_nodes_per_token", sa.Float),
        sa.Column("moved_copies", sa.Integer),
        sa.Column("holds", sa.Boolean, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_placements"),
    )


def downgrade() -> None:
    op.drop_table("placements")
