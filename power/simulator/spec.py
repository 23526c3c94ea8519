"""The simulated row and its faults."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError
from power.admission import LOW_PATIENCE_S
from power.server_model import BLOOM_A100, ServerModel

Seconds = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
FOREVER_S = 1e9


class RowSpec(Frozen):
    """A row of servers behind one breaker.  What pools and jobs it has comes with the work."""

    budget_w: Annotated[float, Field(gt=0, le=1e9)]
    model: ServerModel = BLOOM_A100
    # The model that admission uses; None: the true one without the servers' bias.
    nominal: ServerModel | None = None
    # Requests on a server at once; None: as many as fit in memory.  1: POLCA's row, which does not batch.
    together: Annotated[int, Field(ge=1, le=1024)] | None = None
    bias: Share = 0.03  # standard deviation of a server's watts over its kind's
    telemetry_delay_s: Seconds = 2.0  # after the end of a window; rounded up to whole windows (POLCA, Table 1)
    brake_delay_s: Seconds = 5.0  # from the command until the brake takes effect or releases
    read_back_s: Seconds = 10.0  # between two read-backs of the servers
    smoothing: Share = 0.1  # of the ratio of meter to model, per reading
    patience_s: Seconds = LOW_PATIENCE_S  # a low-priority request that waited longer gets the limit of high priority
    budget_renewed_s: Annotated[float, Field(gt=0, le=1e6)] = 60.0  # between two budget requests of the planner
    budget_valid_s: Annotated[float, Field(gt=0, le=1e6)] = 180.0  # and each time for so long


class During(Frozen):
    from_s: Seconds = 0.0
    to_s: Seconds = FOREVER_S

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.to_s < self.from_s:
            raise RuleError([(("to_s",), f"must be at least from_s ({self.from_s:g}), got {self.to_s:g}")])
        return self


class StaleTelemetry(During):
    """No reading comes; the last one stays."""


class MissingTelemetry(During):
    """Each reading is lost with this probability."""

    share: Share


class BiasedTelemetry(During):
    """The meter reads so many times the truth."""

    factor: Annotated[float, Field(gt=0, le=10)]


class IgnoredActuation(During):
    """Each command for clocks is lost silently with this probability; the brake has its own path and works."""

    share: Share


class LateActuation(During):
    """Each command for clocks takes this much longer with this probability."""

    share: Share
    late_s: Seconds


class DriverReloaded(Frozen):
    """Each server loses its caps with this probability, at the end of the first window from then on."""

    at_s: Seconds
    share: Share = 1.0


class PlannerKilled(During):
    """No budget is renewed."""


Fault = (
    StaleTelemetry
    | MissingTelemetry
    | BiasedTelemetry
    | IgnoredActuation
    | LateActuation
    | DriverReloaded
    | PlannerKilled
)
