"""Checks the audit chain in the process of a job: a million entries take a core for some ten seconds.

This kind of job reads the database itself, with a connection of its own, so it never leaves the worker's machine.
"""

from typing import Final

from api.jobs.body import read_body
from api.jobs.outcome import Report, Solved, Task
from api.schemas.audit import Anchor, AuditCheck
from api.store import ChainPlace, check_chain
from fleet.documents import Frozen

AUDIT_CHECK: Final = "audit check"
DATABASE_URL: Final = "database_url"  # the key in the inputs


class AuditCheckRequest(Frozen):
    """What to check: the entries after the newest checkpoint, after `anchor`, or all."""

    full: bool = False
    anchor: Anchor | None = None


def run_audit_check(task: Task, report: Report) -> Solved:
    """Compute the hashes of the chain again."""
    request = read_body(AuditCheckRequest, task.request)

    def on_progress(checked: int, total: int) -> None:
        report("checking entries", min(1.0, checked / total) if total else 1.0)

    anchor = place_of(request.anchor) if request.anchor is not None else None
    found = check_chain(task.inputs[DATABASE_URL], full=request.full, anchor=anchor, on_progress=on_progress)
    check = AuditCheck(
        entries=found.head.seq,
        intact=found.intact,
        first_broken_seq=found.first_broken_seq,
        checked_from_seq=found.checked_from_seq,
        anchor=anchor_of(found.head),
    )
    return Solved(output=check.model_dump_json())


def place_of(anchor: str) -> ChainPlace:
    seq, _colon, digest = anchor.partition(":")
    return ChainPlace(seq=int(seq), hash=digest)


def anchor_of(place: ChainPlace) -> str:
    """Return the text to keep elsewhere."""
    return f"{place.seq}:{place.hash}"
