"""Expert maps of a target: which stored placement its replicas shall have, and how far that is."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.names import Text
from api.schemas.probes import PlainUrl
from fleet.documents import Frozen
from placement.formats import Engine

PlacementId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
Count = Annotated[int, Field(ge=0, le=10_000)]


class ExpertMapOrder(Frozen):
    """The placement that all replicas of one deployment shall have."""

    placement_id: PlacementId = Field(description="A stored placement, `/v1/placements/{id}`.")
    engine: Engine = Field(description="In whose file format the replicas are given it.")
    replicas_url: PlainUrl = Field(
        description="Where the application's ingress tells what its replicas say, as `/fleetwright/expert-maps`."
    )
    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="Raise it to try a map again that was refused."
    )


class ExpertMapPhase(StrEnum):
    """Where a deployment's roll stands."""

    WANTED = "wanted"  # something is to be written, and may not be now
    WAITING = "waiting"  # for replicas to hear, to change over, to start
    ROLLING = "rolling"  # an order was written in this round
    LOADED = "loaded"  # every replica has it
    REFUSED = "refused"  # no replica changes any more; those that had changed have the map before


class ExpertMapStatus(Frozen):
    """One deployment's roll, as the controller saw it in its last round."""

    placement_id: str
    phase: ExpertMapPhase
    replicas: Count = Field(default=0, description="That take requests.")
    loaded: Count = Field(default=0, description="That have the map.")
    waiting: Count = Field(default=0, description="That have another one, and have not refused it.")
    refused: Count = Field(default=0, description="That refuse it.")
    turn: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="The replica that may change over now."
    )
    message: Text | None = None
