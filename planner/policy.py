"""The policy of a plan: objective, limits, failures to survive, change and explanation."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from fleet.documents import Frozen, RuleError, Violation
from planner.objectives import Objective

Name = Annotated[str, StringConstraints(min_length=1, max_length=250, pattern=r"^\S(.*\S)?$")]
Names = Annotated[tuple[Name, ...], Field(min_length=1, max_length=10_000)]
Usd = Annotated[float, Field(ge=0, le=1e9)]


class Failure(StrEnum):
    """Failures that the remaining replicas must absorb."""

    NODE = "node"  # any one instance
    ZONE = "zone"  # everything in any one zone


class ExplainLevel(StrEnum):
    """The level of a plan's explanation."""

    NONE = "none"
    SHORT = "short"  # the parts that need no further mix
    FULL = "full"


class SpotPolicy(Frozen):
    """The use of instances that the provider may take back."""

    max_share: float = Field(default=1.0, ge=0, le=1, description="Of all GPUs.")
    recovery_min: float = Field(
        default=15.0, ge=0, le=1440, description="Minutes until a replica is replaced after an interruption."
    )
    interruption_rate_per_h: float = Field(
        default=0.1, ge=0, le=60, description="For offers without one; per instance."
    )


class ChangePolicy(Frozen):
    """Limits and costs of starts and stops."""

    max_started: int | None = Field(default=None, ge=0, le=1_000_000)
    max_stopped: int | None = Field(default=None, ge=0, le=1_000_000)
    start_usd: Usd = Field(default=0.0, description="Of starting one replica; counts for goal cost-and-switching.")
    stop_usd: Usd = Field(default=0.0, description="Of stopping one replica; likewise.")
    lasting_h: float = Field(default=1.0, gt=0, le=8760, description="How long the plan is expected to last.")
    keep_within: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Keep the running replicas while they suffice and cost at most this fraction above the best mix.",
    )


class Policy(Frozen):
    """The rules of a plan."""

    goal: Objective = Field(default="cost", validate_default=True, description="The objective of the plan.")
    budget_usd_per_h: Usd | None = None
    survive: tuple[Failure, ...] = Field(default=(), description="Failures to absorb, one at a time.")
    spot: SpotPolicy = SpotPolicy()
    change: ChangePolicy = ChangePolicy()
    erring_buckets: int = Field(
        default=0,
        ge=0,
        le=65_536,
        description="Per option, how many buckets may be at the low end of their rate's interval at once.",
    )
    explain: ExplainLevel = Field(
        default=ExplainLevel.FULL,
        description="The level of explanation; short: summary, ideal bound and power domains; none: nothing.",
    )
    explain_time_limit_s: float | None = Field(
        default=None,
        ge=0,
        le=600,
        description="For the explanation, at most half of time_limit_s; absent: a fifth, or half if there is no mix.",
    )


class Replay(Frozen):
    """How to validate a plan: its requests pass through a simulated fleet, which measures each limit of the SLO.

    A trace is replayed at the planned rate with its bursts; without one, requests are drawn from the sizes.
    """

    hours: float = Field(default=1.0, gt=0, le=168, description="Of traffic; a demand series is replayed as a whole.")
    seed: int = Field(default=0, ge=0, le=2**32)
    size: bool = Field(
        default=True,
        description="Plan again with more or less headroom until every limit holds at the least cost; "
        "else only check the plan as it is.",
    )


class Horizon(Frozen):
    """Plan a demand series per period instead of at its peak."""

    periods: int = Field(default=24, ge=1, le=288, description="Equal parts of the longest series of the workloads.")
    warm_up_min: float = Field(default=10.0, ge=0, le=1440, description="From hiring a replica until it is ready.")


class PowerDomainLimit(Frozen):
    """A power limit on some of the replicas."""

    name: Name
    limit_w: float = Field(ge=0, le=1e9)
    members: Names | None = Field(
        default=None, description="Offer ids, or workload/option for given options; absent: all."
    )


class Quota(Frozen):
    """A cap on GPUs over several offers; all given fields must match."""

    name: Name
    gpus: int = Field(ge=0, le=10_000_000)
    provider: Name | None = None
    region: Name | None = None
    gpu: Name | None = None
    members: Names | None = Field(default=None, description="Offer ids, or workload/option.")


class Running(Frozen):
    """Replicas that run now."""

    workload: Name
    option: Name
    replicas: int = Field(ge=0, le=1_000_000)


class Carbon(Frozen):
    """Carbon intensity of the electricity, g/kWh of CO2-equivalent: one value, or one per step of a series."""

    default_g_per_kwh: float = Field(ge=0, le=5000)
    regions_g_per_kwh: dict[str, float | tuple[float, ...]] = Field(default_factory=dict, max_length=1000)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def intensity_g_per_kwh(self, region: str | None) -> float:
        """The mean of the series, for plans of one period."""
        figure = self.regions_g_per_kwh.get(region or "", self.default_g_per_kwh)
        return sum(figure) / len(figure) if isinstance(figure, tuple) else figure

    def _violations(self) -> Iterator[Violation]:
        for region, figure in self.regions_g_per_kwh.items():
            values = figure if isinstance(figure, tuple) else (figure,)
            if not values or not all(0 <= value <= 5000 for value in values):
                yield ("regions_g_per_kwh", region), "must be one or more values from 0 to 5000"
