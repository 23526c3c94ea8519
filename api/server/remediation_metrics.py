"""Healing cases as metrics: where the open ones stand, how the closed ones ended, and how long ago they were opened."""

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from prometheus_client.core import GaugeMetricFamily, Metric

from api.schemas.remediation import CasePhase, CaseSpec

CACHED_CASES = 4096  # closed ones never change, and are scraped again and again


class CaseOutcome(StrEnum):
    """How a closed case ended."""

    UNTOUCHED = "untouched"  # released before anything was done, as always where the healer only looks
    PROBED = "probed"  # released after a probe that passed
    RELEASED = "released"  # released without one, such as by an operator's word


@dataclass(frozen=True, slots=True)
class CaseMark:
    """What is counted of a case."""

    phase: CasePhase
    opened_at: datetime
    outcome: CaseOutcome | None  # of a closed one


@lru_cache(maxsize=CACHED_CASES)
def mark_of(body: str) -> CaseMark:
    """Of a stored case."""
    case = CaseSpec.model_validate_json(body)
    return CaseMark(phase=case.phase, opened_at=case.opened_at, outcome=None if case.open else _outcome(case))


def healing_metrics(cases: Sequence[CaseMark], at: datetime) -> Iterable[Metric]:
    """All of it; a phase without a case is told too, as 0."""
    still_open = [case for case in cases if case.outcome is None]
    phases = [phase for phase in CasePhase if phase is not CasePhase.RELEASED]
    counts = Tally(case.phase for case in still_open)
    by_phase = GaugeMetricFamily("fleetwright_healing_open_cases", "Open cases, by phase.", labels=["phase"])
    oldest = GaugeMetricFamily(
        "fleetwright_healing_oldest_case_seconds",
        "Since the oldest open case of the phase was opened; 0: there is none.",
        labels=["phase"],
    )
    for phase in phases:
        by_phase.add_metric([phase.value], counts[phase])
        ages_s = [(at - case.opened_at).total_seconds() for case in still_open if case.phase is phase]
        oldest.add_metric([phase.value], max([0.0, *ages_s]))
    closed = GaugeMetricFamily("fleetwright_healing_closed_cases", "Closed cases, by outcome.", labels=["outcome"])
    ended = Tally(case.outcome for case in cases)
    for outcome in CaseOutcome:
        closed.add_metric([outcome.value], ended[outcome])
    yield from (by_phase, oldest, closed)


def _outcome(case: CaseSpec) -> CaseOutcome:
    if not case.acts:
        return CaseOutcome.UNTOUCHED
    probe = next((act for act in reversed(case.acts) if act.act == "probe"), None)
    return CaseOutcome.PROBED if probe is not None and probe.detail.startswith("passed") else CaseOutcome.RELEASED
