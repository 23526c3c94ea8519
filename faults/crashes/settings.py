from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Seconds = Annotated[float, Field(ge=1e-3, le=86_400.0)]


class CrashSettings(Frozen):
    """Limits per kind of evidence."""

    # Sockets only: a job that ends also closes its sockets, within the exit time of its processes.
    sockets_only_s: Seconds = 1.0
    # Device events within this time are part of the reason.
    device_event_s: Seconds = 60.0
