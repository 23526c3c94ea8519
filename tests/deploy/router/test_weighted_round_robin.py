"""Choices follow the weights to within one choice at any time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.router.weighted_round_robin import MAX_CREDIT, WeightedRoundRobin

WEIGHTS = st.dictionaries(st.integers(0, 9), st.floats(0.01, 10.0), min_size=1, max_size=8)


@given(weights=WEIGHTS, choices=st.integers(1, 400))
def test_every_name_is_within_one_choice_of_its_share_at_any_time(weights: dict[int, float], choices: int) -> None:
    quota, had, total = WeightedRoundRobin(weights), Counter[int](), sum(weights.values())
    bound = 1.0 - 1.0 / (2 * len(weights) - 2) if len(weights) > 1 else 0.0
    for count in range(1, choices + 1):
        chosen = quota.choose()
        assert chosen is not None
        had[chosen] += 1
        assert all(abs(had[name] - count * weight / total) <= bound + 1e-6 for name, weight in weights.items())


@given(weights=WEIGHTS, closed=st.lists(st.sets(st.integers(0, 9)), max_size=60))
def test_only_usable_names_are_chosen_and_credit_is_bounded(weights: dict[int, float], closed: list[set[int]]) -> None:
    quota = WeightedRoundRobin(weights)
    for out in closed:
        before = quota.credits
        chosen = quota.choose(lambda name, out=out: name not in out)  # type: ignore[misc] # bound early
        assert chosen not in out
        assert chosen is not None or quota.credits == before
        assert all(abs(credit) <= MAX_CREDIT for credit in quota.credits.values())


def test_a_name_that_was_unavailable_gets_a_bounded_catch_up() -> None:
    quota = WeightedRoundRobin({"a": 0.5, "b": 0.5})
    for _ in range(1000):
        assert quota.choose(lambda name: name == "a") == "a"
    following = [quota.choose() for _ in range(12)]
    assert following[:4] == ["b"] * 4
    assert Counter(following[6:]) == {"a": 3, "b": 3}


def test_a_name_without_weight_is_never_chosen() -> None:
    quota = WeightedRoundRobin({"a": 0.0, "b": 1.0})
    assert {quota.choose() for _ in range(5)} == {"b"}
    assert quota.choose(lambda name: name == "a") is None


def test_credits_are_carried_over_to_new_weights() -> None:
    old = WeightedRoundRobin({"a": 0.5, "b": 0.5})
    assert old.choose() == "a"
    new = WeightedRoundRobin({"a": 0.5, "b": 0.5}, credits_before=old.credits)
    assert [new.choose(), new.choose()] == ["b", "a"]


@pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": -1.0, "b": 2.0}])
def test_invalid_weights_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        WeightedRoundRobin(weights)
