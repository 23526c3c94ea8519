"""A loop's pulse: it begins with the first beat, and ends when a turn is overdue."""

from deploy.common.liveness import ALLOWANCE, Pulse


def test_it_lives_from_the_first_beat_to_the_moment_at_which_the_next_one_is_overdue() -> None:
    now_s = 0.0
    pulse = Pulse(steady_s=lambda: now_s)
    assert not pulse.is_alive()
    pulse.beat(longest_s=5.0)
    now_s = 5.0 * ALLOWANCE
    assert pulse.is_alive()
    now_s += 0.1
    assert not pulse.is_alive()
    pulse.beat(longest_s=1.0)
    assert pulse.is_alive()
