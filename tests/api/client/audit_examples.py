"""Calls of each operation on the audit."""

from typing import Any

from api.client import operations as op
from api.client.calls import Call

AUDIT_EXAMPLES: dict[str, list[Call[Any]]] = {
    "list_audit": [op.list_audit()],
    "export_audit": [op.export_audit(from_seq=1, to_seq=9)],
    "check_audit": [op.check_audit()],
    "list_audit_checkpoints": [op.list_audit_checkpoints()],
    "create_audit_checkpoint": [op.create_audit_checkpoint()],
}
