"""How much one replica carries, with how sure that is and where it comes from."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Rate = Annotated[float, Field(ge=0, le=1e6)]
Table = Annotated[
    tuple[Annotated[tuple[Rate, ...], Field(min_length=1, max_length=256)], ...], Field(min_length=1, max_length=256)
]


class Provenance(StrEnum):
    """Where a throughput table comes from."""

    GIVEN = "given"  # stood in the request and was used as it is
    ROOFLINE = "roofline"  # computed from data sheets, not calibrated
    CALIBRATED = (
        "calibrated"  # computed with coefficients fitted to measured points (docs/explanation/planner/performance.md)
    )
    MEASURED = "measured"  # read off benchmark results of this model on this GPU
    MEASURED_AND_CALIBRATED = "measured+calibrated"  # measured sizes from results, the rest computed


class Throughput(Frozen):
    """Highest rate one replica holds inside the SLO, row per input edge, column per output edge; 0 = cannot serve."""

    max_rps: Table
    provenance: Provenance
    interval_90: tuple[float, float] | None = Field(
        default=None, description="Multiples of max_rps between which 90 % of measured rates lie; absent if not known."
    )
    interval_note: str = Field(description="What the interval rests on, or why there is none.")
