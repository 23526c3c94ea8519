"""Stored placements."""

from pydantic import Field

from api.schemas.results import ResultHead, ResultType
from placement.document import Placement
from placement.request import PlacementRequest


class PlacementRecord(ResultHead):
    """One stored placement."""

    request: PlacementRequest
    placement: Placement


class PlacementSummary(ResultHead):
    """A placement in a list."""

    model: str | None
    slots: int
    gpus: int
    nodes: int
    imbalance: float = Field(description="Load of the fullest GPU over an even share, mean over layers.")
    bound: float = Field(description="Lower bound on the imbalance of every placement of these loads.")
    remote_nodes_per_token: float | None
    moved_copies: int | None
    holds: bool


PLACEMENTS = ResultType(
    name="placement",
    path="placements",
    field="placement",
    request=PlacementRequest,
    record=PlacementRecord,
    summary=PlacementSummary,
)
