"""Converts diagnoses between the report, the stored row and the API's views."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from api.schemas.faults import DiagnosisRecord, DiagnosisReport, DiagnosisSummary, ExpiryChange
from api.server.problems import not_found
from api.store import DiagnosisHead, Transaction, canonical_json
from faults.diagnosis import Diagnosis, Scope

BUNDLE = {"bundle"}


def head_of(
    report: DiagnosisReport, *, diagnosis_id: str, now: datetime, actor: str, bundle_sha256: str | None
) -> DiagnosisHead:
    return DiagnosisHead(
        id=diagnosis_id,
        created_at=now,
        created_by=actor,
        job=report.job,
        fault=report.diagnosis.fault.value,
        scope=report.diagnosis.scope.value,
        expires_at=now + timedelta(seconds=report.expires_in_s),
        report=canonical_json(report.model_dump(mode="json", exclude=BUNDLE)),
        bundle_sha256=bundle_sha256,
    )


def read_report(head: DiagnosisHead) -> DiagnosisReport:
    """Return the report without the bundle."""
    return DiagnosisReport.model_validate_json(head.report)


def record_of(head: DiagnosisHead) -> DiagnosisRecord:
    report = read_report(head)
    return DiagnosisRecord(
        id=head.id,
        created_at=head.created_at,
        created_by=head.created_by,
        expires_at=head.expires_at,
        job=head.job,
        diagnosis=report.diagnosis,
        node=report.name_of(report.diagnosis.node),
        peer=report.name_of(report.diagnosis.peer),
        nodes=report.nodes,
        domains=report.domains,
        bundle_sha256=head.bundle_sha256,
    )


def summary_of(head: DiagnosisHead) -> DiagnosisSummary:
    report = read_report(head)
    diagnosis = report.diagnosis
    return DiagnosisSummary(
        id=head.id,
        created_at=head.created_at,
        created_by=head.created_by,
        expires_at=head.expires_at,
        job=head.job,
        fault=diagnosis.fault,
        scope=diagnosis.scope,
        node=report.name_of(diagnosis.node),
        peer=report.name_of(diagnosis.peer),
        switch=diagnosis.switch,
        isolate=diagnosis.isolate,
        confidence=diagnosis.confidence,
        reason=diagnosis.reason,
        has_bundle=head.bundle_sha256 is not None,
    )


def audit_detail(head: DiagnosisHead, diagnosis: Diagnosis) -> Mapping[str, Any]:
    fields = ("fault", "scope", "node", "peer", "switch", "direction", "isolate", "confidence", "reason")
    shown = diagnosis.model_dump(mode="json", include=set(fields))
    return shown | {"job": head.job, "bundle_sha256": head.bundle_sha256}


def failure_domains_of(report: DiagnosisReport) -> tuple[str, ...]:
    """Return the failure domains behind the switch of a leaf or uplink diagnosis."""
    diagnosis = report.diagnosis
    if diagnosis.scope not in (Scope.LEAF, Scope.UPLINK):
        return ()
    return report.domains or ((diagnosis.switch,) if diagnosis.switch is not None else ())


async def stored_diagnosis(tx: Transaction, diagnosis_id: str) -> DiagnosisHead:
    """Return a stored diagnosis, or raise 404."""
    found = await tx.diagnoses.get(diagnosis_id)
    if found is None:
        raise not_found(f"diagnosis {diagnosis_id}")
    return found


def with_expiry(head: DiagnosisHead, *, now: datetime, change: ExpiryChange) -> DiagnosisHead:
    return replace(head, expires_at=now + timedelta(seconds=change.expires_in_s))
