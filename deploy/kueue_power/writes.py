"""The patches of Kueue's objects: states of checks, and the condition of an admission check.  Pure.

A patch of a workload tests its version, so a decision from an outdated read is refused.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from deploy.common.kubernetes_client import Operations
from deploy.kueue_power.config import PowerCheckFile
from deploy.kueue_power.demand import Demand
from deploy.kueue_power.workloads import WATTS, AdmissionCheck, CheckState, CheckStatus, Workload
from power.job_admission import Admitted, Decision, Held, Rejected

ACTIVE: Final = "Active"


def state_of(
    decision: Decision, demand: Demand, check: CheckStatus, file: PowerCheckFile, *, now: datetime
) -> dict[str, Any]:
    """Return the state of the check for a decision."""
    match decision:
        case Admitted(row=row):
            return _state(check, CheckState.READY, message_of(decision), now=now) | {
                "podSetUpdates": [
                    {
                        "name": each.name,
                        "nodeSelector": {file.node_label: row},
                        "annotations": {WATTS: f"{each.watts:.10g}"},
                    }
                    for each in demand.pod_sets
                ]
            }
        case Held():
            return retry(check, message_of(decision), file, now=now)
        case Rejected():
            return _state(check, CheckState.REJECTED, message_of(decision), now=now)


def without_gpus(check: CheckStatus, *, now: datetime) -> dict[str, Any]:
    return _state(check, CheckState.READY, "the workload has no GPUs, so no row supplies it", now=now)


def retry(check: CheckStatus, message: str, file: PowerCheckFile, *, now: datetime) -> dict[str, Any]:
    return _state(check, CheckState.RETRY, message, now=now) | {"requeueAfterSeconds": file.retry_s}


def message_of(decision: Decision) -> str:
    needs = f"the job needs {decision.job.demand_w:,.0f} W"
    match decision:
        case Admitted(row=row, free_w=free_w, limit_w=limit_w):
            return f"row {row}: {needs}, {free_w:,.0f} of {limit_w:,.0f} W were free"
        case Held(row=None):
            return f"{needs}, and no row that it may use has a known power limit"
        case Held(row=row, free_w=free_w, limit_w=limit_w, ahead=ahead):
            text = f"row {row}: {needs}, {max(0.0, free_w):,.0f} of {limit_w:,.0f} W are free"
            if ahead:
                text += (
                    f"; {len(ahead)} earlier {'jobs wait' if len(ahead) > 1 else 'job waits'}: {', '.join(ahead[:3])}"
                )
            return f"{text}; {_expected(decision.expected_at_s)}"
        case Rejected(rating_w=rating_w):
            return f"{needs}, above the rating of every row that it may use, at most {rating_w:,.0f} W"


def state_patch(workload: Workload, at: int, state: Mapping[str, Any]) -> Operations:
    check = workload.status.admission_checks[at]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": workload.metadata.resource_version},
        {"op": "test", "path": f"/status/admissionChecks/{at}/name", "value": check.name},
        {"op": "replace", "path": f"/status/admissionChecks/{at}", "value": dict(state)},
    ]


def active_patch(check: AdmissionCheck, *, now: datetime) -> Mapping[str, Any] | None:
    """Return the patch that makes a check usable, or reports why it is not; None where the status is current."""
    if check.spec.parameters is None:
        status, reason, message = "True", "Ready", "the power check decides about workloads"
    else:
        status, reason = "False", "ParametersNotSupported"
        message = "spec.parameters must be absent: the configuration file of the power check has the rows"
    found = next((each for each in check.status.conditions if each.type == ACTIVE), None)
    generation = check.metadata.generation
    if found is not None:
        current = (found.status, found.reason, found.message, found.observed_generation)
        if current == (status, reason, message, generation):
            return None
    since = now if found is None or found.status != status else found.last_transition_time or now
    condition = {
        "type": ACTIVE,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": _timestamp(since),
    }
    return {
        "metadata": {"resourceVersion": check.metadata.resource_version},
        "status": {"conditions": [condition]},
    }


def _state(check: CheckStatus, state: CheckState, message: str, *, now: datetime) -> dict[str, Any]:
    found = {"name": check.name, "state": state.value, "message": message, "lastTransitionTime": _timestamp(now)}
    return found | ({} if check.retry_count is None else {"retryCount": check.retry_count})


def _expected(at_s: float | None) -> str:
    if at_s is None:
        return "expected time not known: the running jobs have no maximum execution time"
    return f"expected by {datetime.fromtimestamp(at_s, tz=UTC):%Y-%m-%d %H:%M:%SZ}"


def _timestamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
