"""The response of a what-if run: brakes, distance from the budget, and waits of requests for power."""

from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen
from power.whatif.request import FaultName, PolicyName

Ratio = Annotated[float, Field(ge=0)]
Watt = Annotated[float, Field(ge=0)]
MAX_EVENTS = 1_000
MAX_POINTS = 480


class Impact(Frozen):
    """Latency over that of the uncapped row of the same seed, minus 1: 0.01 is 1 % longer.

    Null without requests, or if so many never finished that the quantile has no bound.
    """

    p50: float | None
    p99: float | None
    requests: int = Field(ge=0, description="That the uncapped row finished.")
    unfinished: int = Field(ge=0, description="Of these, not finished under the policy.")


class Impacts(Frozen):
    """Impacts by priority."""

    high: Impact
    low: Impact


class Waits(Frozen):
    """How long prompts waited for power, beyond the queue for a server."""

    held: int = Field(ge=0, description="Prompts that waited at all.")
    mean_s: float = Field(ge=0, description="Of those that waited.")
    p99_s: float = Field(ge=0)
    longest_s: float = Field(ge=0)


class AdmissionWaits(Frozen):
    """Waits by priority."""

    high: Waits
    low: Waits


class Uncapped(Frozen):
    """The same row and work with neither policy nor brake."""

    peak_utilization: Ratio
    mean_utilization: Ratio
    energy_kwh: Ratio


class Event(Frozen):
    """Something that happened at a moment."""

    at_s: float = Field(ge=0)
    what: str
    row_w: Watt | None = None


class Profile(Frozen):
    """The row's power in equal steps, for a picture."""

    step_s: float = Field(gt=0)
    mean_w: tuple[Watt, ...]
    max_w: tuple[Watt, ...]


class Assumptions(Frozen):
    """The assumptions behind the figures."""

    server: str
    work: str
    peak_share: float | None = Field(description="Null where the budget was given outright.")
    token_sensitivity: float
    prompt_sensitivity: float
    token_exponent: float
    prompt_exponent: float
    together: int = Field(description="Requests that a server may take at once, under the policy.")
    uncapped_together: int = Field(description="The same in the uncapped run, which impacts are against.")
    server_bias: float
    command_delay_s: float
    telemetry_delay_s: float
    brake_delay_s: float
    guarded: bool


class RowResponse(Frozen):
    """The result of a what-if run."""

    servers: int
    budget_servers: int
    policy: PolicyName
    days: float
    duration_s: float = Field(gt=0, description="Simulated; days in whole steps of the load's course.")
    seed: int
    training_share: float
    fault: FaultName | None
    brakes: int = Field(ge=0)
    peak_utilization: Ratio = Field(description="Highest reading over the budget.")
    mean_utilization: Ratio
    seconds_over_budget: float = Field(ge=0)
    budget_w: Watt
    slo: Impacts
    slo_held: bool
    energy_kwh: Ratio
    requests: int = Field(ge=0)
    unfinished: int = Field(ge=0, description="Requests that were not done when the time was over.")
    admission_wait_s: AdmissionWaits
    uncapped: Uncapped
    events: tuple[Event, ...] = Field(max_length=MAX_EVENTS)
    profile: Profile
    assumptions: Assumptions
    run_s: float = Field(ge=0, description="Processor time of the row itself.")
    total_s: float = Field(ge=0, description="With the uncapped rows that the budget and the impacts come from.")
