"""Names and free text that the API accepts."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

# A DNS label: the same name must serve as a Kubernetes object, a Prometheus label and a path segment.
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]

# Free text for people.  C0 controls are refused: PostgreSQL stores no NUL, and terminals interpret escapes.
Text = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]

GpuName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
# A part of a target: a GPU type, or some replica options of one (`deploy.controller.plan_reader`,
# docs/explanation/runtime/controller.md).
PartName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Replicas = Annotated[int, Field(ge=0, le=10_000)]
PlanId = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]

_SIZE = re.compile(r"/x(\d+)(@[^/]*)?$")
_CLOCK = re.compile(r"@(\d[\d.]*)$")


def _require_plan_spelling(part: str) -> str:
    """Require the spelling of plans: a part that no plan contains would be scaled to zero."""
    if (size := _SIZE.search(part)) is not None and size[1].startswith("0"):
        raise ValueError(f"{part!r}: allowed after /x: the GPUs of one replica, 1 or more, without leading zeros")
    if (clock := _CLOCK.search(part)) is not None and not _is_clock(clock[1]):
        raise ValueError(
            f"{part!r}: allowed after @: a clock above 0 and at most 1, as plans write it, such as 0.7 or 1"
        )
    return part


def _is_clock(text: str) -> bool:
    try:
        clock = float(text)
    except ValueError:
        return False
    return 0.0 < clock <= 1.0 and f"{clock:g}" == text


PartKey = Annotated[PartName, AfterValidator(_require_plan_spelling)]
