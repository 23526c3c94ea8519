"""How actuation goes wrong."""

from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Share = Annotated[float, Field(ge=0, le=1)]


class ActuatorFaults(Frozen):
    """What happens to an order on its way.  Drawn anew for each order and server."""

    ignored_share: Share = 0.0  # taken without a word, never done
    refused_share: Share = 0.0  # answered with an error
    late_share: Share = 0.0
    late_s: Annotated[float, Field(ge=0, le=3600)] = 30.0  # beyond the declared delay
    brake_ignored_share: Share = 0.0
    deaf: tuple[str, ...] = ()  # servers that never do what they are told
    clock_step: Annotated[float, Field(ge=0, le=0.2)] = 0.0  # devices round down to steps of this


NO_FAULTS = ActuatorFaults()
