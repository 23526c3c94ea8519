"""Placements as stored: the request, the answer, who asked and when.  Immutable."""

from datetime import datetime

from pydantic import Field

from fleet.documents import Frozen
from placement.document import Placement
from placement.request import PlacementRequest


class PlacementRecord(Frozen):
    """One stored placement."""

    id: str = Field(description="Sorts by time of creation.")
    created_at: datetime
    created_by: str
    request: PlacementRequest
    placement: Placement


class PlacementSummary(Frozen):
    """A placement in a list."""

    id: str
    created_at: datetime
    created_by: str
    model: str | None
    slots: int
    gpus: int
    nodes: int
    imbalance: float = Field(description="Fullest GPU over an even share, mean over layers.")
    bound: float = Field(description="No placement of these loads can be below it.")
    remote_nodes_per_token: float | None
    moved_copies: int | None
    holds: bool
