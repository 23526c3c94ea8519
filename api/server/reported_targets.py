"""Joins all targets and the last reports on them, for pages that anyone may read."""

from collections.abc import Iterable, Sequence

from api.schemas.targets import TargetStatus
from api.server.metrics import ReportedTarget
from api.server.newest_version_cache import NewestVersionCache
from api.server.targets import TARGETS
from api.store import DocumentRecord, StatusRecord
from fleet.documents import read_stored

# Most targets have not changed since the last page.
_PARSED_TARGETS = NewestVersionCache(lambda target: TARGETS.show(TARGETS.entry(target)), max_documents=4096)


def parse_reports(targets: Iterable[DocumentRecord], reports: Iterable[StatusRecord]) -> Sequence[ReportedTarget]:
    """Parse what the store has; for thousands of targets this takes a good part of a second."""
    of_target = {report.target: report for report in reports}
    found = []
    for target in targets:
        report = of_target.get(target.name)
        found.append(
            ReportedTarget(
                target=_PARSED_TARGETS.get(target),
                status=read_stored(TargetStatus, report.body) if report is not None else None,
                reported_at=report.reported_at if report is not None else None,
            )
        )
    return found
