"""What the replay of a plan showed."""

from typing import Literal

from pydantic import Field

from fleet.documents import Frozen
from planner.replay.verdict import Tightness, Verdict


class WorkloadProof(Frozen):
    """What the replay of one workload showed."""

    workload: str
    traffic: Literal["trace", "drawn"]
    requests: int = Field(ge=0)
    hours: float
    utilisation: float = Field(description="Of the rates in `throughput`, that the plan was made with.")
    verdict: Verdict
    tightness: Tightness | None = Field(description="Whether every replica is needed; absent where a limit is broken.")
