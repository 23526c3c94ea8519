"""What a reported verdict must be beside well formed: its place fits its scope, and nothing in it has no end.

Only what is reported now is held to it; what was kept before is read as it is.
"""

from collections.abc import Iterator
from typing import Final

from api.schemas.faults import MAX_EVIDENCE, MAX_REASON, VerdictReport
from faults.diagnosis import Scope, Verdict
from fleet.errors import DocumentError, Problem

_SWITCHES: Final = (Scope.LEAF, Scope.UPLINK)
_PAIRS: Final = (Scope.LINK, Scope.WORKLOAD)  # foreign traffic goes from a node to a peer, and is no hardware's
_NODES: Final = (Scope.RANK, Scope.NODE)


def refuse_unfit(report: VerdictReport) -> None:
    """Raises a DocumentError that names every field that does not fit."""
    if problems := [Problem(f"verdict.{field}", message) for field, message in _violations(report.verdict)]:
        raise DocumentError(name="request", problems=problems)


def _violations(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield from _of_place(verdict)
    if verdict.isolate and verdict.scope not in _NODES:
        yield "isolate", f"is true for scope {verdict.scope.value}, allowed: only for {_words(_NODES)}"
    if verdict.detected_s < verdict.onset_s:
        yield "detected_s", f"is before onset_s, expected {verdict.onset_s:g} or later, got {verdict.detected_s:g}"
    if len(verdict.reason) > MAX_REASON:
        yield "reason", f"expected at most {MAX_REASON:,} characters, got {len(verdict.reason):,}"
    if len(verdict.evidence) > MAX_EVIDENCE:
        yield "evidence", f"expected at most {MAX_EVIDENCE} entries, got {len(verdict.evidence):,}"


def _of_place(verdict: Verdict) -> Iterator[tuple[str, str]]:
    scope = verdict.scope
    if scope in _SWITCHES and not verdict.switch:
        yield "switch", f"is required for scope {scope.value}: its name"
    if scope not in _SWITCHES and verdict.switch is not None:
        yield "switch", f"is given for scope {scope.value}, allowed: only for {_words(_SWITCHES)}"
    if scope is Scope.LINK and verdict.peer is None:
        yield "peer", "is required for scope link: the node at its other end"
    if scope not in _PAIRS and verdict.peer is not None:
        yield "peer", f"is given for scope {scope.value}, allowed: only for {_words(_PAIRS)}"


def _words(scopes: tuple[Scope, ...]) -> str:
    return " and ".join(scope.value for scope in scopes)
