"""Names and free text as the wire accepts them."""

from typing import Annotated

from pydantic import Field, StringConstraints

# A DNS label: the same name must serve as a Kubernetes object, a Prometheus label and a path segment.
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]

# Free text for people.  C0 controls are refused: PostgreSQL stores no NUL, and terminals obey escapes.
Text = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]

GpuName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Replicas = Annotated[int, Field(ge=0, le=10_000)]
PlanId = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]
