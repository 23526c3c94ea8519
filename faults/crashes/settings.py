"""When vanished sockets or a process that is gone count as a crash."""

from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Seconds = Annotated[float, Field(ge=1e-3, le=86_400.0)]


class CrashSettings(Frozen):
    """Patience, per kind of evidence."""

    # Nothing but sockets: a job that ends takes them away too, all within the time that processes need to exit.
    sockets_only_s: Seconds = 1.0
    # Two nodes that vanish in the same look have no order; neither is isolated before this has told them apart.
    device_event_s: Seconds = 60.0
