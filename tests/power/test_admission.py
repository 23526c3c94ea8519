"""The rule, and the queues of a router against it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.admission import Gate, held_to, may_start
from power.controls import Priority

LOW, HIGH = Priority.LOW, Priority.HIGH


def gate(patience_s: float = 10.0) -> Gate[str]:
    return Gate(patience_s=patience_s, low_hold_w=96.0, high_hold_w=99.0)


def names(of: Gate[str], *, row_w: float, now_s: float) -> list[str]:
    return [each.request for each in of.release(row_w=row_w, now_s=now_s)]


def test_a_prompt_starts_while_its_step_fits() -> None:
    assert may_start(90, 6, 96)
    assert not may_start(90, 6.1, 96)


def test_low_priority_is_held_lower_until_its_patience_is_out() -> None:
    assert held_to(LOW, 9.9, 10, 96, 99) == 96
    assert held_to(LOW, 10, 10, 96, 99) == 99
    assert held_to(HIGH, 0, 10, 96, 99) == 99


def test_each_start_takes_its_watts_from_the_next() -> None:
    router = gate()
    for name in ("a", "b", "c"):
        router.offer(name, priority=HIGH, step_w=4, now_s=0)
    assert names(router, row_w=90, now_s=1) == ["a", "b"]
    assert names(router, row_w=94, now_s=2) == ["c"]


def test_high_priority_goes_first_though_it_came_later() -> None:
    router = gate()
    router.offer("low", priority=LOW, step_w=5, now_s=0)
    router.offer("high", priority=HIGH, step_w=5, now_s=3)
    assert names(router, row_w=90, now_s=4) == ["high"]


def test_low_priority_out_of_patience_stands_where_it_would_have_come_as_a_high_one() -> None:
    router = gate()
    router.offer("low", priority=LOW, step_w=5, now_s=0)
    router.offer("early", priority=HIGH, step_w=5, now_s=9)
    router.offer("late", priority=HIGH, step_w=5, now_s=11)
    assert names(router, row_w=80, now_s=11) == ["early", "low", "late"]


def test_a_small_prompt_does_not_overtake_a_large_one() -> None:
    router = gate()
    router.offer("large", priority=HIGH, step_w=9, now_s=0)
    router.offer("small", priority=HIGH, step_w=1, now_s=0)
    router.offer("low", priority=LOW, step_w=1, now_s=0)
    assert names(router, row_w=91, now_s=1) == []


def test_waits_are_measured() -> None:
    router = gate()
    router.offer("a", priority=LOW, step_w=10, now_s=2)
    assert router.release(row_w=90, now_s=3) == []
    assert router.waits_s(now_s=5) == {LOW: 3, HIGH: 0}
    (started,) = router.release(row_w=80, now_s=6.5)
    assert (started.request, started.priority, started.waited_s) == ("a", LOW, 4.5)
    assert router.waits_s(now_s=7) == {LOW: 0, HIGH: 0}


offers = st.lists(st.tuples(st.sampled_from(Priority), st.floats(0.1, 5), st.floats(0, 3)), max_size=40)


@given(offers=offers, draws=st.lists(st.floats(60, 110), min_size=1, max_size=30))
def test_no_release_passes_the_limits_and_order_holds_within_a_priority(
    offers: list[tuple[Priority, float, float]], draws: list[float]
) -> None:
    router: Gate[int] = Gate(patience_s=5, low_hold_w=96, high_hold_w=99)
    steps_w, now_s, went = {}, 0.0, []
    for number, (priority, step_w, gap_s) in enumerate(offers):
        now_s += gap_s
        steps_w[number] = step_w
        router.offer(number, priority=priority, step_w=step_w, now_s=now_s)
    for row_w in draws:
        now_s += 1
        drawn_w = row_w
        for each in router.release(row_w=row_w, now_s=now_s):
            drawn_w += steps_w[each.request]
            assert drawn_w <= (96 if each.priority is LOW and each.waited_s < 5 else 99)
            went.append(each)
    for priority in Priority:
        numbers = [each.request for each in went if each.priority is priority]
        assert numbers == sorted(numbers)


@given(loads=st.lists(st.booleans(), min_size=60, max_size=60))
def test_low_priority_does_not_starve_behind_an_endless_queue_of_high(loads: list[bool]) -> None:
    """One prompt can go each second: the low one goes when a high one would that came as its patience ended."""
    router: Gate[str] = gate(patience_s=5)
    router.offer("low", priority=LOW, step_w=10, now_s=0)
    for second, twice in enumerate(loads):
        for _ in range(1 + twice):
            router.offer("high", priority=HIGH, step_w=10, now_s=float(second))
        went = names(router, row_w=80, now_s=float(second))
        assert len(went) == 1
        if "low" in went:
            before = sum(1 + extra for extra in loads[:6])
            assert second <= before
            return
    pytest.fail("it starved")
