"""The worst case of a row, and the highest clocks at which it fits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from power.controls import Clocks
from power.guard import Duty, Row
from power.server_model import BLOOM_A100, Draw
from tests.power.guard.rows import LIMIT_W, row

SMALL = BLOOM_A100.model_copy(update={"name": "small", "gpus": 4, "base_w": 700.0})
TRAINING = Draw(floor_w=2000.0, rise_w=4000.0, exponent=1.3)
MIXED = Row(
    models=(BLOOM_A100, SMALL),
    kind=np.array([0, 0, 0, 1, 1, 0]),
    duty=np.array([Duty.LOW, Duty.HIGH, Duty.TRAINING, Duty.LOW, Duty.HIGH, Duty.HIGH]),
    training=TRAINING,
)
FULL = Clocks()


def by_hand(clocks: Clocks) -> float:
    """The worst case from the models, server by server."""

    def serving(model: object, token: float, prompt: float) -> float:
        assert isinstance(model, type(BLOOM_A100))
        return max(model.prompt_w(prompt), model.token_w(token, model.most_together))

    low = [serving(model, clocks.low_token, clocks.low_prompt) for model in (BLOOM_A100, SMALL)]
    high = [serving(model, clocks.high_token, clocks.high_prompt) for model in (BLOOM_A100, BLOOM_A100, SMALL)]
    return sum(low) + sum(high) + TRAINING.watts(clocks.training)


clocks_drawn = st.builds(Clocks, *[st.floats(0.1, 1.0)] * 5)


@given(clocks_drawn)
def test_the_worst_case_equals_that_of_the_server_models(clocks: Clocks) -> None:
    assert MIXED.worst_w(clocks) == pytest.approx(by_hand(clocks))
    held = np.vstack([MIXED.clocks_of(clocks), np.zeros((2, len(MIXED)))])
    assert MIXED.worst_each_w(held).sum() == pytest.approx(by_hand(clocks))


def test_a_braked_server_draws_at_its_brake_clock() -> None:
    held = np.vstack([np.ones((2, 6)), np.ones((1, 6)), np.zeros((1, 6))])
    clock, most = BLOOM_A100.brake_clock, BLOOM_A100.most_together
    worst_w = max(BLOOM_A100.prompt_w(clock), BLOOM_A100.token_w(clock, most))
    assert MIXED.worst_each_w(held)[0] == pytest.approx(worst_w)


@given(limit_share=st.floats(0.3, 1.2))
def test_the_clocks_fit_or_are_the_lowest_and_no_higher_ones_fit(limit_share: float) -> None:
    limit_w = limit_share * MIXED.worst_w(FULL)
    level = MIXED.level_within(limit_w, lowest=0.3)
    if MIXED.worst_w(level) > limit_w:
        assert level == Clocks(*[0.3] * 5)
        return
    if level == FULL:
        return
    # Raising the capped class to the full clock exceeds the limit.
    if level.high_prompt < 1:
        assert MIXED.worst_w(level._replace(high_token=1.0, high_prompt=1.0)) > limit_w
    else:
        assert MIXED.worst_w(level._replace(low_token=1.0, low_prompt=1.0, training=1.0)) > limit_w
    assert MIXED.worst_w(level) > limit_w - 0.001 * MIXED.worst_w(FULL)


def test_high_priority_is_capped_last() -> None:
    mild = row().level_within(0.9 * row().worst_w(FULL), lowest=0.4)
    assert (mild.high_token, mild.high_prompt) == (1.0, 1.0)
    assert mild.low_prompt < 1.0
    tight = row().level_within(LIMIT_W, lowest=0.4)
    assert (tight.low_prompt, tight.training) == (0.4, 0.4)
    assert 0.4 < tight.high_prompt < 1.0


def test_a_row_with_high_priority_only_is_capped_to_its_limit() -> None:
    only = Row(models=(BLOOM_A100,), kind=np.zeros(4, np.int64), duty=np.ones(4, np.int64))
    level = only.level_within(0.8 * only.worst_w(FULL), lowest=0.4)
    assert only.worst_w(level) == pytest.approx(0.8 * only.worst_w(FULL))


@pytest.mark.parametrize(
    ("kind", "duty", "message"),
    [
        ([0, 0], [0], "must name each of the 1 servers"),
        ([], [], "at least one"),
        ([1], [0], "must be an index into the 1 models"),
        ([-1], [0], "must be an index into the 1 models"),
        ([0], [3], "must be 0 (low priority), 1 (high priority) or 2 (training)"),
    ],
)
def test_an_invalid_row_is_refused(kind: list[int], duty: list[int], message: str) -> None:
    with pytest.raises(RuleError) as refused:
        Row(models=(BLOOM_A100,), kind=np.array(kind, np.int64), duty=np.array(duty, np.int64))
    assert message in str(refused.value)
