"""The trip curve against its differential equation, and against the standards."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.breaker import has_tripped, heat_after
from power.guard import TripCurve

CURVE = TripCurve()


def stepped(ratio: float, *, heat: float, step_s: float = 0.01) -> float:
    """The time to trip by small Euler steps: an oracle without the closed form."""
    elapsed_s = 0.0
    while heat < CURVE.holds**2:
        heat += (ratio**2 - heat) / CURVE.time_constant_s * step_s
        elapsed_s += step_s
    return elapsed_s


@pytest.mark.parametrize("ratio", [1.06, 1.2, 1.4, 2.0])
@pytest.mark.parametrize("heat", [0.0, 0.6, 1.0])
def test_the_trip_time_solves_the_differential_equation(ratio: float, heat: float) -> None:
    assert CURVE.seconds_to_trip(ratio, heat=heat) == pytest.approx(stepped(ratio, heat=heat), rel=1e-3, abs=0.02)


def test_the_load_that_iec_60947_2_requires_never_trips() -> None:
    assert CURVE.seconds_to_trip(1.05) == inf
    assert CURVE.seconds_to_trip(1.0) == inf


def test_the_breaker_trips_within_the_times_of_the_standards() -> None:
    assert CURVE.seconds_to_trip(1.30, heat=0.0) < 2 * 3600  # IEC 60947-2
    assert CURVE.seconds_to_trip(1.35, heat=0.0) < 3600  # UL 489


def test_the_magnetic_trip_is_instantaneous() -> None:
    assert CURVE.seconds_to_trip(5.0) == 0.0
    assert has_tripped(CURVE, 0.0, 5.0)


@given(
    ratio=st.floats(1.06, 4.9), more=st.floats(0.0, 1.0), heat=st.floats(0.0, 1.1), warmer=st.floats(0.0, 0.5)
)  # fmt: skip
def test_more_load_and_more_heat_trip_sooner(ratio: float, more: float, heat: float, warmer: float) -> None:
    assert CURVE.seconds_to_trip(ratio + more, heat=heat) <= CURVE.seconds_to_trip(ratio, heat=heat)
    assert CURVE.seconds_to_trip(ratio, heat=heat + warmer) <= CURVE.seconds_to_trip(ratio, heat=heat)


@given(ratio=st.floats(0.0, 4.0), heat=st.floats(0.0, 1.0), first_s=st.floats(0.0, 500.0), then_s=st.floats(0.0, 500.0))
def test_heat_does_not_depend_on_the_division_into_steps(
    ratio: float, heat: float, first_s: float, then_s: float
) -> None:
    once = heat_after(CURVE, heat, ratio, first_s + then_s)
    twice = heat_after(CURVE, heat_after(CURVE, heat, ratio, first_s), ratio, then_s)
    assert once == pytest.approx(twice, abs=1e-9)


@given(ratio=st.floats(1.06, 4.9), heat=st.floats(0.0, 1.0))
def test_the_breaker_opens_at_its_trip_time_and_not_before(ratio: float, heat: float) -> None:
    left_s = CURVE.seconds_to_trip(ratio, heat=heat)
    assert not has_tripped(CURVE, heat_after(CURVE, heat, ratio, 0.999 * left_s), ratio)
    assert has_tripped(CURVE, heat_after(CURVE, heat, ratio, 1.001 * left_s), ratio)
