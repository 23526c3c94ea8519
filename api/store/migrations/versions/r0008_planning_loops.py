"""Reports on planning loops.  A program of revision 0007 does not read the table."""

import sqlalchemy as sa
from alembic import op

revision = "r0008"
down_revision: str | None = "r0007"


def upgrade() -> None:
    op.create_table(
        "planning_loop_status",
        sa.Column("planning_loop", sa.String(63), nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reported_by", sa.String(200), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("state", sa.Text),
        sa.PrimaryKeyConstraint("planning_loop", name="pk_planning_loop_status"),
    )


def downgrade() -> None:
    op.drop_table("planning_loop_status")
