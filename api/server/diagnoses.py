"""Verdicts as they are kept: the report whole, the bundle beside it, and how long they are believed."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from api.schemas.faults import BeliefChange, VerdictRecord, VerdictReport, VerdictSummary
from api.server.problems import not_found
from api.store import Transaction, VerdictHead, canonical_json
from faults.diagnosis import Scope, Verdict

BUNDLE = {"bundle"}


def head_of(
    report: VerdictReport, *, verdict_id: str, now: datetime, actor: str, bundle_sha256: str | None
) -> VerdictHead:
    """A report as it goes into the database."""
    return VerdictHead(
        id=verdict_id,
        created_at=now,
        created_by=actor,
        job=report.job,
        fault=report.verdict.fault.value,
        scope=report.verdict.scope.value,
        believed_until=now + timedelta(seconds=report.believed_for_s),
        report=canonical_json(report.model_dump(mode="json", exclude=BUNDLE)),
        bundle_sha256=bundle_sha256,
    )


def read_report(head: VerdictHead) -> VerdictReport:
    """What was reported, without the bundle."""
    return VerdictReport.model_validate_json(head.report)


def record_of(head: VerdictHead) -> VerdictRecord:
    """As it is told."""
    report = read_report(head)
    return VerdictRecord(
        id=head.id,
        created_at=head.created_at,
        created_by=head.created_by,
        believed_until=head.believed_until,
        job=head.job,
        verdict=report.verdict,
        node=report.name_of(report.verdict.node),
        peer=report.name_of(report.verdict.peer),
        nodes=report.nodes,
        domains=report.domains,
        bundle_sha256=head.bundle_sha256,
    )


def summary_of(head: VerdictHead) -> VerdictSummary:
    """As lists show it."""
    report = read_report(head)
    verdict = report.verdict
    return VerdictSummary(
        id=head.id,
        created_at=head.created_at,
        created_by=head.created_by,
        believed_until=head.believed_until,
        job=head.job,
        fault=verdict.fault,
        scope=verdict.scope,
        node=report.name_of(verdict.node),
        peer=report.name_of(verdict.peer),
        switch=verdict.switch,
        isolate=verdict.isolate,
        confidence=verdict.confidence,
        reason=verdict.reason,
        has_bundle=head.bundle_sha256 is not None,
    )


def told(head: VerdictHead, verdict: Verdict) -> Mapping[str, Any]:
    """What the audit keeps of a report."""
    fields = ("fault", "scope", "node", "peer", "switch", "direction", "isolate", "confidence", "reason")
    said = verdict.model_dump(mode="json", include=set(fields))
    return said | {"job": head.job, "bundle_sha256": head.bundle_sha256}


def switched_off(report: VerdictReport) -> tuple[str, ...]:
    """The failure domains that a verdict on the network explains."""
    verdict = report.verdict
    if verdict.scope not in (Scope.LEAF, Scope.UPLINK):
        return ()
    return report.domains or ((verdict.switch,) if verdict.switch is not None else ())


async def known(tx: Transaction, verdict_id: str) -> VerdictHead:
    """A stored verdict, or 404."""
    found = await tx.verdicts.get(verdict_id)
    if found is None:
        raise not_found(f"verdict {verdict_id}")
    return found


def believed_from(head: VerdictHead, *, now: datetime, change: BeliefChange) -> VerdictHead:
    """The same, believed for so long from now."""
    return replace(head, believed_until=now + timedelta(seconds=change.believed_for_s))
