"""The settings of a guard, each with its reason."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from power.controls import Clocks
from power.guard.breaker import TripCurve

Watts = Annotated[float, Field(gt=0, le=1e9)]
Seconds = Annotated[float, Field(ge=0, le=3600)]
Share = Annotated[float, Field(gt=0, le=1)]
Clock = Annotated[float, Field(gt=0, le=1)]

# POLCA's second threshold (arXiv 2308.12908): 1110 and 1305 of 1410 MHz.
POLCA_DEGRADED = Clocks(1110 / 1410, 1305 / 1410, 1110 / 1410, 1305 / 1410, 1110 / 1410)


class GuardSettings(Frozen):
    rating_w: Watts  # continuous limit of the row's feed
    standing_w: Watts | None = None  # the budget without a valid one of a planner; None: the rating
    period_s: Annotated[float, Field(gt=0, le=60)] = 2.0
    telemetry_delay_s: Seconds = 2.0  # declared: from the end of a reading's window to its arrival
    stale_periods: Annotated[float, Field(ge=1, le=100)] = 2.0  # an older reading, beyond its delay, counts as lost
    return_readings: Annotated[int, Field(ge=1, le=100)] = 2  # in a row, before telemetry counts as restored

    brake_s: Seconds = 5.0  # declared: from the command to its effect (POLCA)
    brake_hold_s: Seconds = 10.0  # from the moment at which it takes effect
    release_share: Share = 0.93  # of the budget: a reading taken under the brake must be below
    release_hold_s: Seconds = (
        10.0  # at the worst-case clocks before the policy applies again; 0: at once, as POLCA does
    )

    margin_s: Seconds = 4.0  # beyond a declared delay, before a command counts as ignored: two periods
    max_tries: Annotated[int, Field(ge=1, le=20)] = 2  # repetitions before a server counts as unresponsive
    longest_wait_s: Annotated[float, Field(gt=0, le=3600)] = 60.0  # between two commands to an unresponsive server
    silent_after_s: Annotated[float, Field(gt=0, le=3600)] = 10.0  # without a report of the agent
    clock_tolerance: Annotated[float, Field(ge=0, le=0.1)] = 0.011  # devices round to their steps: 15 of 1410 MHz
    max_reserved: Share = 0.05  # of the budget: with a larger reserve for unresponsive servers the row is degraded

    lead_s: Seconds = 60.0  # so long before a lower limit comes into force, the policy is given it
    degraded: Annotated[tuple[Clock, ...], Field(min_length=5, max_length=5)] = POLCA_DEGRADED
    lowest_clock: Clock = 0.4  # of the worst-case clocks; below, memory-bound work becomes compute-bound
    telemetry_lost_low_limit: Share = 0.90  # of the budget, on the uncorrected model of the row
    telemetry_lost_high_limit: Share = 0.95
    trip: TripCurve = TripCurve()
    trip_share: Share = 0.75  # of the time that the breaker's curve leaves, until the brake has to have worked

    @property
    def degraded_clocks(self) -> Clocks:
        """Return the upper bound of the clocks while budget or actuation is not reliable."""
        return Clocks(*self.degraded)

    @property
    def standing_limit_w(self) -> float:
        return self.rating_w if self.standing_w is None else self.standing_w

    @property
    def stale_after_s(self) -> float:
        return self.telemetry_delay_s + self.stale_periods * self.period_s

    @model_validator(mode="after")
    def _agree(self) -> Self:
        violations: list[Violation] = []
        if self.standing_limit_w > self.rating_w:
            violations.append(
                (("standing_w",), f"must be at most rating_w ({self.rating_w:g}), got {self.standing_w:g}")
            )
        low, high = self.telemetry_lost_low_limit, self.telemetry_lost_high_limit
        if low > high:
            message = f"must be at most telemetry_lost_high_limit ({high:g}), got {low:g}"
            violations.append((("telemetry_lost_low_limit",), message))
        RuleError.raise_for(violations)
        return self
