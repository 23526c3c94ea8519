"""Simulations of rows and plans of caps, immutable as plans are."""

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision: str | None = "r0002"


def upgrade() -> None:
    op.create_table(
        "power_answers",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_power_answers"),
    )


def downgrade() -> None:
    op.drop_table("power_answers")
