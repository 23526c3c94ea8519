"""Events: what has changed, in the order of the audit."""

from datetime import datetime

from pydantic import Field

from fleet.documents import Frozen

EVENT_STREAM = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"


class ChangeEvent(Frozen):
    """One change, without its content: read the subject for that."""

    id: int = Field(ge=1, description="The number of the audit entry.  A number without an event is no gap.")
    type: str = Field(description="Such as `plan.created` or `quarantine.cordon`.")
    subject: str = Field(description="The changed object: its path below `/v1/`, such as `targets/chat`.")
    at: datetime
    project: str | None = Field(description="The project of the subject; null: it belongs to the fleet.")
