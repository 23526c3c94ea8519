"""Checks new diagnoses beyond their schema, and converts them between the report, the stored row and the API's views.

Stored diagnoses are read without the checks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from api.schemas.faults import (
    MAX_EVIDENCE,
    MAX_REASON,
    DiagnosisRecord,
    DiagnosisReport,
    DiagnosisSummary,
    ExpiryChange,
)
from api.schemas.projects import DEFAULT_PROJECT
from api.store import DiagnosisHead, canonical_json
from faults.diagnosis import Diagnosis, Scope
from fleet.documents import read_stored
from fleet.errors import DocumentError, Problem

BUNDLE = {"bundle"}
SUMMARISED = ("fault", "scope", "switch", "isolate", "confidence", "reason")
_SWITCHES: Final = (Scope.LEAF, Scope.UPLINK)
_PAIRS: Final = (Scope.LINK, Scope.WORKLOAD)  # cross traffic of a workload goes from a node to a peer
_NODES: Final = (Scope.RANK, Scope.NODE)


def head_of(
    report: DiagnosisReport,
    *,
    diagnosis_id: str,
    now: datetime,
    actor: str,
    bundle_sha256: str | None,
    project: str = DEFAULT_PROJECT,
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
        project=project,
    )


def read_report(head: DiagnosisHead) -> DiagnosisReport:
    """Return the report without the bundle."""
    return read_stored(DiagnosisReport, head.report)


def record_of(head: DiagnosisHead) -> DiagnosisRecord:
    report = read_report(head)
    return DiagnosisRecord(
        **_shown_head(head, report),
        diagnosis=report.diagnosis,
        nodes=report.nodes,
        domains=report.domains,
        bundle_sha256=head.bundle_sha256,
    )


def summary_of(head: DiagnosisHead) -> DiagnosisSummary:
    report = read_report(head)
    shown = {name: getattr(report.diagnosis, name) for name in SUMMARISED}
    return DiagnosisSummary(**_shown_head(head, report), **shown, has_bundle=head.bundle_sha256 is not None)


def _shown_head(head: DiagnosisHead, report: DiagnosisReport) -> dict[str, Any]:
    fields = {name: getattr(head, name) for name in ("id", "created_at", "created_by", "expires_at", "job")}
    ends = {end: report.name_of(getattr(report.diagnosis, end)) for end in ("node", "peer")}
    return fields | ends


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


def with_expiry(head: DiagnosisHead, *, now: datetime, change: ExpiryChange) -> DiagnosisHead:
    return replace(head, expires_at=now + timedelta(seconds=change.expires_in_s))


def refuse_invalid(report: DiagnosisReport) -> None:
    """Raise a DocumentError that names every wrong field."""
    if problems := [Problem(f"diagnosis.{field}", message) for field, message in _violations(report.diagnosis)]:
        raise DocumentError(name="request", problems=problems)


def _violations(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    yield from _of_place(diagnosis)
    if diagnosis.isolate and diagnosis.scope not in _NODES:
        yield "isolate", f"is true for scope {diagnosis.scope.value}, allowed: only for {_names(_NODES)}"
    if diagnosis.detected_s < diagnosis.onset_s:
        yield "detected_s", f"is before onset_s, expected {diagnosis.onset_s:g} or later, got {diagnosis.detected_s:g}"
    if len(diagnosis.reason) > MAX_REASON:
        yield "reason", f"expected at most {MAX_REASON:,} characters, got {len(diagnosis.reason):,}"
    if len(diagnosis.evidence) > MAX_EVIDENCE:
        yield "evidence", f"expected at most {MAX_EVIDENCE} entries, got {len(diagnosis.evidence):,}"


def _of_place(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    scope = diagnosis.scope
    if scope in _SWITCHES and not diagnosis.switch:
        yield "switch", f"is required for scope {scope.value}: its name"
    if scope not in _SWITCHES and diagnosis.switch is not None:
        yield "switch", f"is given for scope {scope.value}, allowed: only for {_names(_SWITCHES)}"
    if scope is Scope.LINK and diagnosis.peer is None:
        yield "peer", "is required for scope link: the node at its other end"
    if scope not in _PAIRS and diagnosis.peer is not None:
        yield "peer", f"is given for scope {scope.value}, allowed: only for {_names(_PAIRS)}"


def _names(scopes: tuple[Scope, ...]) -> str:
    return " and ".join(scope.value for scope in scopes)
