"""Reports the conditions of other systems as diagnoses, while they last.

A condition names a node and no cause in a job, so its diagnosis never justifies a quarantine (`isolate` is false).  It
is shown with the node, and the system that reported the condition acts on it.  The active diagnoses in the API are the
only state: each reconcile reports what is missing, extends what lasts, and withdraws what is over.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import structlog

from api.client import AsyncClient
from api.schemas.faults import DiagnosisReport, DiagnosisSummary
from deploy.common.text import one_line
from deploy.health_events.decision import EVIDENCE_JOB
from deploy.health_events.outlet import NodeCondition, ObservedNode
from faults.diagnosis import Diagnosis, FaultClass, Scope

log = structlog.get_logger()

EXPIRES_IN_S: Final = 120.0
MAX_CONDITIONS: Final = 200  # more at once is an outage of the network or of the source
_SEPARATOR: Final = ": "  # of a condition's name and its message


class _Key(NamedTuple):
    node: str | None
    condition: str


async def sync_evidence(
    api: AsyncClient, nodes: Mapping[str, ObservedNode], active: Iterable[DiagnosisSummary], *, now: datetime
) -> None:
    wanted = {_Key(node.name, _name(each)): each for node in nodes.values() for each in node.conditions}
    if len(wanted) > MAX_CONDITIONS:
        log.warning("conditions_dropped", conditions=len(wanted), allowed=MAX_CONDITIONS)
        wanted = dict(sorted(wanted.items())[:MAX_CONDITIONS])
    known = {_Key(each.node, each.reason.partition(_SEPARATOR)[0]): each for each in active if each.job == EVIDENCE_JOB}
    soon = now + timedelta(seconds=EXPIRES_IN_S / 2)
    for key, condition in wanted.items():
        if key not in known:
            await _report(api, key, condition, soon=soon)
        elif known[key].expires_at < soon:
            await api.set_diagnosis_expiry(known[key].id, expires_in_s=EXPIRES_IN_S)
    for key, diagnosis in known.items():
        if key not in wanted:
            await api.set_diagnosis_expiry(diagnosis.id, expires_in_s=0.0)


async def _report(api: AsyncClient, key: _Key, condition: NodeCondition, *, soon: datetime) -> None:
    report = report_of(key.node or "", condition)
    digest = hashlib.sha256(f"{key.node}\n{report.diagnosis.reason}".encode()).hexdigest()
    record = await api.report_diagnosis(report, idempotency_key=digest)
    if record.expires_at < soon:  # the same condition was reported before, and has returned
        await api.set_diagnosis_expiry(record.id, expires_in_s=EXPIRES_IN_S)


def report_of(node: str, condition: NodeCondition) -> DiagnosisReport:
    diagnosis = Diagnosis(
        fault=FaultClass.CRASH,
        scope=Scope.NODE,
        node=0,
        onset_s=0.0,  # the sources give no time on a job's clock; the name of the condition has its own
        detected_s=0.0,
        isolate=False,
        confidence=0.5,
        reason=f"{_name(condition)}{_SEPARATOR}{one_line(condition.message) or 'no message'}",
        evidence=("node-condition",),
    )
    return DiagnosisReport(job=EVIDENCE_JOB, diagnosis=diagnosis, nodes={"0": node}, expires_in_s=EXPIRES_IN_S)


def _name(condition: NodeCondition) -> str:
    since = f" since {condition.since}" if condition.since else ""
    return one_line(f"{condition.source} reports {condition.kind}{since}").replace(_SEPARATOR, " ")
