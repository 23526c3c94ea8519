"""The admission rule."""

from hypothesis import given
from hypothesis import strategies as st

from power.admission import admits, limit_w
from power.controls import Priority

LOW, HIGH = Priority.LOW, Priority.HIGH


def test_a_prompt_starts_while_its_step_fits() -> None:
    assert admits(90, 6, 96)
    assert not admits(90, 6.1, 96)


def test_low_priority_has_a_lower_limit_until_its_patience_ends() -> None:
    assert limit_w(LOW, 9.9, 10, 96, 99) == 96
    assert limit_w(LOW, 10, 10, 96, 99) == 99
    assert limit_w(HIGH, 0, 10, 96, 99) == 99


@given(priority=st.sampled_from(Priority), waited_s=st.floats(0, 100), longer_s=st.floats(0, 100))
def test_a_longer_wait_never_lowers_the_limit(priority: Priority, waited_s: float, longer_s: float) -> None:
    limits = [limit_w(priority, waited, 5, 96, 99) for waited in (waited_s, waited_s + longer_s)]
    assert 96 <= limits[0] <= limits[1] <= 99
