"""A verdict to change for a test."""

from faults.diagnosis import FaultClass, Scope, Verdict


def verdict(
    fault: FaultClass = FaultClass.COMM_HANG, node: int | None = 1, *, scope: Scope = Scope.NODE, **more: object
) -> Verdict:
    """Of a node, and nobody is to be taken out for it."""
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
    return Verdict.model_validate({**fields, **more})
