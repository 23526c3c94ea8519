"""Reports on planning loops; who requested the version of a document that another actor wrote.

A program of revision 0007 keeps working on this schema: it does not read the table, and the new column may be null.
"""

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
    op.add_column("documents", sa.Column("requested_by", sa.String(200)))


def downgrade() -> None:
    op.drop_column("documents", "requested_by")
    op.drop_table("planning_loop_status")
