"""Checks a new diagnosis beyond its schema: the place fits the scope, times are ordered, texts are bounded.

Stored diagnoses are read without these checks.
"""

from collections.abc import Iterator
from typing import Final

from api.schemas.faults import MAX_EVIDENCE, MAX_REASON, DiagnosisReport
from faults.diagnosis import Diagnosis, Scope
from fleet.errors import DocumentError, Problem

_SWITCHES: Final = (Scope.LEAF, Scope.UPLINK)
_PAIRS: Final = (Scope.LINK, Scope.WORKLOAD)  # cross traffic of a workload goes from a node to a peer
_NODES: Final = (Scope.RANK, Scope.NODE)


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
