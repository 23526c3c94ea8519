"""Jobs and workers; projects, names and labels of rows; checkpoints of the audit; sessions; shared rate limits.

A program of revision 0006 keeps working on this schema: every new column has a default or may be null.
"""

import sqlalchemy as sa
from alembic import op

revision = "r0007"
down_revision: str | None = "r0006"

MOMENT = sa.DateTime(timezone=True)
OWNED = ("documents", "results", "diagnoses")


def upgrade() -> None:
    for table in OWNED:
        op.add_column(table, sa.Column("project", sa.String(63), nullable=False, server_default="default"))
    op.add_column("results", sa.Column("name", sa.String(200)))
    op.add_column("results", sa.Column("content_sha256", sa.String(64)))
    op.add_column("results", sa.Column("inputs", sa.Text))
    op.create_index("ix_results_content_sha256", "results", ["content_sha256"])
    op.create_table(
        "result_labels",
        sa.Column("result_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(63), nullable=False),
        sa.Column("value", sa.String(63), nullable=False),
        sa.PrimaryKeyConstraint("result_id", "key", name="pk_result_labels"),
    )
    op.create_index("ix_result_labels_key", "result_labels", ["key", "value", "result_id"])
    op.add_column("leases", sa.Column("renewed_at", MOMENT))
    op.add_column("tokens", sa.Column("project", sa.String(63)))
    op.add_column("tokens", sa.Column("parent", sa.String(12)))
    op.add_column("audit", sa.Column("project", sa.String(63)))
    op.add_column("target_status", sa.Column("reported_by", sa.String(200)))
    op.add_column("leases", sa.Column("held_by", sa.String(200)))
    op.add_column("leases", sa.Column("held_term", sa.Integer))
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("lane", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("request_id", sa.String(64)),
        sa.Column("key", sa.String(200)),
        sa.Column("fingerprint", sa.String(64)),
        sa.Column("parent", sa.String(36)),
        sa.Column("subject", sa.String(200)),
        sa.Column("deadline_s", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(63)),
        sa.Column("started_at", MOMENT),
        sa.Column("finished_at", MOMENT),
        sa.Column("phase", sa.String(100)),
        sa.Column("share", sa.Float),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("cpu_s", sa.Float),
        sa.Column("request", sa.Text),
        sa.Column("output", sa.Text),
        sa.Column("failure", sa.Text),
        sa.Column("trace", sa.String(55)),
        sa.Column("naming", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_state", "jobs", ["state", "lane", "project", "created_by", "parent", "id"])
    op.create_index("ix_jobs_parent", "jobs", ["parent", "state"])
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])
    op.create_index("ix_jobs_project", "jobs", ["project", "created_at"])
    op.create_index("uq_jobs_created_by", "jobs", ["created_by", "key"], unique=True)
    op.create_table(
        "workers",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("beats", sa.Integer, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("version", sa.String(63), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
    op.create_table(
        "audit_checkpoints",
        sa.Column("seq", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("made_by", sa.String(200), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_checkpoints"),
    )
    op.create_table(
        "rate_usage",
        sa.Column("caller", sa.String(200), nullable=False),
        sa.Column("replica", sa.String(63), nullable=False),
        sa.Column("spent", sa.Float, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("caller", "replica", name="pk_rate_usage"),
    )
    op.create_table(
        "write_probe",
        sa.Column("replica", sa.String(63), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("replica", name="pk_write_probe"),
    )


def downgrade() -> None:
    for table in ("write_probe", "rate_usage", "audit_checkpoints", "workers", "jobs", "result_labels"):
        op.drop_table(table)
    op.drop_index("ix_results_content_sha256", "results")
    for table, column in (
        ("leases", "renewed_at"),
        ("leases", "held_term"),
        ("leases", "held_by"),
        ("audit", "project"),
        ("target_status", "reported_by"),
        ("tokens", "parent"),
        ("tokens", "project"),
        ("results", "inputs"),
        ("results", "content_sha256"),
        ("results", "name"),
        *((table, "project") for table in OWNED),
    ):
        op.drop_column(table, column)
