"""The results of a plan's replay."""

from typing import Literal

from pydantic import Field

from fleet.documents import Frozen
from planner.replay.slo_check import LimitCheck, SloCheck, Tightness


class LossValidation(Frozen):
    """A failure that the plan must survive, and the replay of the remaining replicas."""

    name: str
    verified: bool
    broken: tuple[LimitCheck, ...] = Field(description="Limits that break; none where the rest cannot be routed.")


class WorkloadValidation(Frozen):
    """The result of one workload's replay."""

    workload: str
    traffic: Literal["trace", "drawn"]
    requests: int = Field(ge=0)
    hours: float
    utilisation: float = Field(description="Share of the rates in `throughput` that the plan uses.")
    verdict: SloCheck
    losses: tuple[LossValidation, ...] = ()
    tightness: Tightness | None = Field(description="Whether every replica is needed; absent where a limit is broken.")

    @property
    def verified(self) -> bool:
        return self.verdict.verified and all(loss.verified for loss in self.losses)
