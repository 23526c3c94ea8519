"""Leases."""

import sqlalchemy as sa
from alembic import op

revision = "r0005"
down_revision: str | None = "r0004"


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("holder", sa.String(500)),
        sa.Column("term", sa.Integer, nullable=False),
        sa.Column("beats", sa.Integer, nullable=False),
        sa.Column("lease_s", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )


def downgrade() -> None:
    op.drop_table("leases")
