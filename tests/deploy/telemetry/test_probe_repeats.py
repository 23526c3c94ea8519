"""Slow trains are repeated: how often, and when."""

from hypothesis import given
from hypothesis import strategies as st

from deploy.telemetry.prober import MAX_REPEATS, MAX_TAILS, MIN_TAILS, SLOWER, Repeats

USUAL_S = 1e-3


def known(*peers: int, tail_s: float = USUAL_S) -> Repeats:
    """Every peer has had enough trains."""
    repeats = Repeats()
    for peer in peers:
        for _ in range(MIN_TAILS):
            repeats.sent(peer)
            repeats.taken(peer, tail_s)
    return repeats


def test_a_slow_train_is_repeated_until_one_is_as_fast_as_usual() -> None:
    repeats = known(1, 2)
    repeats.sent(1)
    repeats.taken(1, 3 * USUAL_S)
    assert repeats.next() == 1
    repeats.taken(1, USUAL_S)
    assert repeats.next() is None


def test_a_path_that_stays_slow_is_repeated_a_limited_number_of_times_per_turn() -> None:
    repeats = known(1)
    for _ in range(2):
        repeats.sent(1)
        count = 0
        repeats.taken(1, 1.25 * USUAL_S)
        while repeats.next() == 1:
            count += 1
            repeats.taken(1, 1.25 * USUAL_S)
        assert count == MAX_REPEATS


def test_slow_peers_take_turns() -> None:
    repeats = known(1, 2)
    for peer in (1, 2):
        repeats.sent(peer)
        repeats.taken(peer, 2 * USUAL_S)
    assert [repeats.next(), repeats.next(), repeats.next()] == [1, 2, None]


def test_a_peer_is_compared_with_its_own_past() -> None:
    repeats = known(1)
    for _ in range(MIN_TAILS):
        repeats.sent(2)
        repeats.taken(2, 5 * USUAL_S)
        repeats.next()
    repeats.sent(2)
    repeats.taken(2, 5 * USUAL_S)
    assert repeats.next() is None


def test_a_path_that_stays_slow_becomes_usual() -> None:
    repeats = known(1)
    for _ in range(MAX_TAILS):
        repeats.sent(1)
        repeats.taken(1, 2 * USUAL_S)
        repeats.next()
    repeats.sent(1)
    repeats.taken(1, 2 * USUAL_S)
    assert repeats.next() is None


@given(st.lists(st.floats(1.0, SLOWER * 0.999), min_size=1, max_size=50))
def test_trains_of_about_the_usual_time_are_not_repeated(factors: list[float]) -> None:
    repeats = known(1)
    for factor in factors:
        repeats.sent(1)
        repeats.taken(1, USUAL_S * factor)
    assert repeats.next() is None
