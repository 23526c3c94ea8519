"""The trip curve of a breaker: an inverse-time curve as a thermal replica, the form of IEC 60255-149.

    d(heat)/dt = (r^2 - heat) / tau        r: power over rating; heat: squared, so 1 = equilibrium at the rating
    trips when heat reaches k^2
    at a constant r, from heat h:  t = tau * ln((r^2 - h) / (r^2 - k^2)) for r > k, else never

Voltage is constant, so power replaces current.  IEC 60947-2 requires a breaker to carry k = 1.05 without a trip.  It
requires a trip within 2 h at 1.30, UL 489 within 1 to 2 h at 1.35: both give the latest moment.  Only the maker's curve
gives the earliest, so tau = 300 s is strict on purpose: a breaker at its rating trips after 48 s at 1.30.  Set the
lower edge of the maker's band if you have it.
"""

from math import inf, log
from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen


class TripCurve(Frozen):
    """One breaker, relative to its rating."""

    holds: Annotated[float, Field(ge=1, le=2)] = 1.05  # k: carried without end
    time_constant_s: Annotated[float, Field(gt=0, le=36_000)] = 300.0  # tau
    at_once: Annotated[float, Field(gt=1, le=50)] = 5.0  # the magnetic part opens here

    def seconds_to_trip(self, ratio: float, *, heat: float = 1.0) -> float:
        """Return the time to trip at a constant overload, from this heat."""
        limit = self.holds * self.holds
        if ratio >= self.at_once or heat >= limit:
            return 0.0
        if ratio <= self.holds:
            return inf
        return self.time_constant_s * log((ratio * ratio - heat) / (ratio * ratio - limit))
