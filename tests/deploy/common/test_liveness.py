"""A loop's liveness: it begins with the first beat, and ends when a turn is overdue."""

from deploy.common.liveness import ALLOWANCE, Liveness


def test_it_lives_from_the_first_beat_to_the_moment_at_which_the_next_one_is_overdue() -> None:
    now_s = 0.0
    liveness = Liveness(steady_s=lambda: now_s)
    assert not liveness.is_alive()
    liveness.beat(longest_s=5.0)
    now_s = 5.0 * ALLOWANCE
    assert liveness.is_alive()
    now_s += 0.1
    assert not liveness.is_alive()
    liveness.beat(longest_s=1.0)
    assert liveness.is_alive()
