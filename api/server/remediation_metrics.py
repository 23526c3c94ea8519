"""Exports metrics of the remediation cases: the open ones by state and stage, the closed ones by outcome."""

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from prometheus_client.core import GaugeMetricFamily, Metric

from api.schemas.remediation import CaseSpec, RemediationStage
from faults.quarantine import OUT_OF_SERVICE, NodeState
from fleet.documents import read_stored

CACHED_CASES = 4096  # closed cases never change, and every scrape reads them


class CaseOutcome(StrEnum):
    UNTOUCHED = "untouched"  # released before any action, as always without --act
    PROBED = "probed"  # released after a passed probe
    RELEASED = "released"  # released without one, such as by an operator


@dataclass(frozen=True, slots=True)
class CaseMark:
    """Holds the counted properties of a case."""

    state: NodeState
    stage: RemediationStage
    opened_at: datetime
    outcome: CaseOutcome | None  # of a closed case


@lru_cache(maxsize=CACHED_CASES)
def mark_of(body: str) -> CaseMark:
    case = read_stored(CaseSpec, body)
    outcome = None if case.open else _outcome(case)
    return CaseMark(state=case.state, stage=case.stage, opened_at=case.opened_at, outcome=outcome)


def remediation_metrics(cases: Sequence[CaseMark], at: datetime) -> Iterable[Metric]:
    """Yield all metrics; a combination of state and stage without a case is 0."""
    still_open = [case for case in cases if case.outcome is None]
    labels = ["state", "stage"]
    counts = GaugeMetricFamily("fleetwright_remediation_open_cases", "Open cases.", labels=labels)
    oldest = GaugeMetricFamily(
        "fleetwright_remediation_oldest_case_seconds", "Age of the oldest open case; 0: there is none.", labels=labels
    )
    for state in NodeState:
        for stage in RemediationStage if state in OUT_OF_SERVICE else ():
            found = [case for case in still_open if (case.state, case.stage) == (state, stage)]
            ages_s = [(at - case.opened_at).total_seconds() for case in found]
            counts.add_metric([state.value, stage.value], len(found))
            oldest.add_metric([state.value, stage.value], max([0.0, *ages_s]))
    closed = GaugeMetricFamily("fleetwright_remediation_closed_cases", "Closed cases, by outcome.", labels=["outcome"])
    ended = Tally(case.outcome for case in cases)
    for outcome in CaseOutcome:
        closed.add_metric([outcome.value], ended[outcome])
    yield from (counts, oldest, closed)


def _outcome(case: CaseSpec) -> CaseOutcome:
    if not case.actions:
        return CaseOutcome.UNTOUCHED
    probe = next((each for each in reversed(case.actions) if each.action == "probe"), None)
    return CaseOutcome.PROBED if probe is not None and probe.detail.startswith("passed") else CaseOutcome.RELEASED
