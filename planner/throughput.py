"""The throughput of one replica, with its interval and provenance."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Rate = Annotated[float, Field(ge=0, le=1e6)]
Table = Annotated[
    tuple[Annotated[tuple[Rate, ...], Field(min_length=1, max_length=256)], ...], Field(min_length=1, max_length=256)
]


class ThroughputSource(StrEnum):
    """The source of a throughput table."""

    GIVEN = "given"  # in the request
    ROOFLINE = "roofline"  # computed from data sheets, not calibrated
    CALIBRATED = "calibrated"  # computed with fitted coefficients (docs/explanation/planner/performance.md)
    MEASURED = "measured"  # from benchmark results of this model on this GPU
    MEASURED_AND_CALIBRATED = "measured+calibrated"  # measured sizes from results, the rest computed


class Throughput(Frozen):
    """Highest rate of one replica inside the SLO, row per input edge, column per output edge; 0 = cannot serve."""

    max_rps: Table
    provenance: ThroughputSource
    interval_90: tuple[float, float] | None = Field(
        default=None, description="Multiples of max_rps that contain 90 % of measured rates; absent if not known."
    )
    interval_note: str = Field(description="The basis of the interval, or why there is none.")
