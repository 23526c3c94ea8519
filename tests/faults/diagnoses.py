"""A diagnosis to change in a test."""

from faults.diagnosis import Diagnosis, FaultClass, Scope


def diagnosis(
    fault: FaultClass = FaultClass.COMM_HANG, node: int | None = 1, *, scope: Scope = Scope.NODE, **more: object
) -> Diagnosis:
    """A diagnosis of a node that justifies no isolation."""
    fields = {
        "fault": fault,
        "scope": scope,
        "node": node,
        "onset_s": 1.0,
        "detected_s": 2.0,
        "isolate": False,
        "confidence": 0.9,
        "reason": "because",
    }
    return Diagnosis.model_validate({**fields, **more})
