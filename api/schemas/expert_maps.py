"""Expert maps of a target: the stored placement for its replicas, and the progress of its rollout."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.names import Text
from api.schemas.probes import PlainUrl
from fleet.documents import Frozen
from placement.formats import Engine

PlacementId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
Count = Annotated[int, Field(ge=0, le=10_000)]


class ExpertMapSpec(Frozen):
    """The target placement of all replicas of one deployment."""

    placement_id: PlacementId = Field(description="A stored placement, `/v1/placements/{id}`.")
    engine: Engine = Field(description="The engine whose file format the replicas read.")
    replicas_url: PlainUrl = Field(
        description="Where the application's ingress reports its replicas' state, such as `/fleetwright/expert-maps`."
    )
    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="Increase it to retry a refused map."
    )


class ExpertMapPhase(StrEnum):
    """The phase of a deployment's rollout."""

    WANTED = "wanted"  # a write is needed and not allowed now
    WAITING = "waiting"  # for replicas that receive the map, switch to it or start
    ROLLING = "rolling"  # this reconcile wrote a command
    LOADED = "loaded"  # every replica has the map
    REFUSED = "refused"  # no replica switches any more; the switched ones have the previous map again


class ExpertMapStatus(Frozen):
    """One deployment's rollout, as of the controller's last reconcile."""

    placement_id: str
    phase: ExpertMapPhase
    replicas: Count = Field(default=0, description="Replicas that take requests.")
    loaded: Count = Field(default=0, description="Replicas with the map.")
    waiting: Count = Field(default=0, description="Replicas with another map that have not refused this one.")
    refused: Count = Field(default=0, description="Replicas that refuse the map.")
    turn: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="The replica that may switch now."
    )
    message: Text | None = None
