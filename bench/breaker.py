"""The state of a breaker under a changing load, by the thermal replica of `power.guard.breaker`."""

from math import exp

from power.guard import TripCurve


def heat_after(curve: TripCurve, heat: float, ratio: float, duration_s: float) -> float:
    """Return the heat after a constant ratio; exact for every step length."""
    final = ratio * ratio
    return final + (heat - final) * exp(-duration_s / curve.time_constant_s)


def has_tripped(curve: TripCurve, heat: float, ratio: float) -> bool:
    """Return whether the breaker is open at this heat and load."""
    return heat >= curve.holds * curve.holds or ratio >= curve.at_once
