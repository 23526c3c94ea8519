"""How a plan is to be chosen: its goal, its limits, what it must survive and how far it may move."""

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
    """What the rest of the fleet must carry on its own."""

    NODE = "node"  # any one instance
    ZONE = "zone"  # all that stands in any one zone


class ExplainLevel(StrEnum):
    """How much of an explanation a plan carries."""

    NONE = "none"
    SHORT = "short"  # the parts that need no further mix
    FULL = "full"


class SpotPolicy(Frozen):
    """How far to lean on instances that may be taken back."""

    max_share: float = Field(default=1.0, ge=0, le=1, description="Of all GPUs.")
    recovery_min: float = Field(
        default=15.0, ge=0, le=1440, description="Minutes until a replica that was taken back is replaced."
    )
    interruption_rate_per_h: float = Field(
        default=0.1, ge=0, le=60, description="For offers that state none; per instance."
    )


class ChangePolicy(Frozen):
    """What moving away from the replicas that run now may and does cost."""

    max_started: int | None = Field(default=None, ge=0, le=1_000_000)
    max_stopped: int | None = Field(default=None, ge=0, le=1_000_000)
    start_usd: Usd = Field(default=0.0, description="Of starting one replica; counts with goal cost-and-switching.")
    stop_usd: Usd = Field(default=0.0, description="Of stopping one replica; likewise.")
    lasting_h: float = Field(default=1.0, gt=0, le=8760, description="How long the plan is meant to hold.")
    keep_within: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Keep what runs now while it holds and costs at most this fraction more than the cheapest mix.",
    )


class Policy(Frozen):
    """The rules of the choice."""

    goal: Objective = Field(default="cost", validate_default=True, description="The objective of the plan.")
    budget_usd_per_h: Usd | None = None
    survive: tuple[Failure, ...] = Field(default=(), description="Failures that the rest must carry, one at a time.")
    spot: SpotPolicy = SpotPolicy()
    change: ChangePolicy = ChangePolicy()
    erring_buckets: int = Field(
        default=0,
        ge=0,
        le=65_536,
        description="Per option, how many buckets may turn out at the low end of their rate's interval at once.",
    )
    explain: ExplainLevel = Field(
        default=ExplainLevel.FULL,
        description="What the plan explains; short: its summary, ideal bound and power domains; none: nothing.",
    )
    explain_time_limit_s: float | None = Field(
        default=None,
        ge=0,
        le=600,
        description="For all of the explanation; absent: a fifth of time_limit_s, or half of it if there is no mix.",
    )


class Replay(Frozen):
    """How to prove a plan: its requests through a simulated fleet, each limit of the objective measured.

    A trace is replayed at the planned rate with its bursts; without one, requests are drawn from the sizes.
    """

    hours: float = Field(default=1.0, gt=0, le=168, description="Of traffic; a demand series is replayed whole.")
    seed: int = Field(default=0, ge=0, le=2**32)
    size: bool = Field(
        default=True,
        description="Plan again with more or less headroom until every limit holds as cheaply as can be; "
        "else only judge the plan as it is.",
    )


class Horizon(Frozen):
    """Plan a series of demand period by period instead of at its peak."""

    periods: int = Field(default=24, ge=1, le=288, description="Equal parts of the longest series of the workloads.")
    warm_up_min: float = Field(default=10.0, ge=0, le=1440, description="From hiring a replica until it serves.")


class PowerDomain(Frozen):
    """A feed that some of the replicas hang on."""

    name: Name
    limit_w: float = Field(ge=0, le=1e9)
    members: Names | None = Field(
        default=None, description="Offer ids, or workload/option for options given outright; absent: everything."
    )


class Quota(Frozen):
    """A cap on GPUs over several offers; every field that is given narrows which."""

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
    """Carbon intensity of the electricity, g/kWh of CO2-equivalent: a figure, or one per step of a series."""

    default_g_per_kwh: float = Field(ge=0, le=5000)
    regions_g_per_kwh: dict[str, float | tuple[float, ...]] = Field(default_factory=dict, max_length=1000)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def intensity_g_per_kwh(self, region: str | None) -> float:
        """The mean over the series, for plans of one period."""
        figure = self.regions_g_per_kwh.get(region or "", self.default_g_per_kwh)
        return sum(figure) / len(figure) if isinstance(figure, tuple) else figure

    def _violations(self) -> Iterator[Violation]:
        for region, figure in self.regions_g_per_kwh.items():
            values = figure if isinstance(figure, tuple) else (figure,)
            if not values or not all(0 <= value <= 5000 for value in values):
                yield ("regions_g_per_kwh", region), "must be one or more figures from 0 to 5000"
