"""One iteration."""

from dataclasses import replace

import pytest

from planner.performance.steps import StepCosts, step_s

COSTS = StepCosts(
    fixed_s=1.0,
    weights_s=8.0,
    experts_s=10.0,
    expert_share=0.5,
    token_s=1.0,
    traffic_s=0.1,
    cached_token_s=0.01,
    pair_s=0.001,
    sequence_s=0.2,
    request_s=0.0,
    cache_tokens=1000,
    max_sequences=64,
    chunk_tokens=64,
    expert_token_s=0.5,
    hidden_share=0.25,
)


def test_few_sequences_wait_for_the_weights_and_many_for_the_arithmetic() -> None:
    few = step_s(COSTS, decoding=2, cached_tokens=100)
    assert few == pytest.approx(1 + 8 + 7.5 + 2 * 0.3 + 1)
    many = step_s(COSTS, decoding=40, cached_tokens=100)
    assert many == pytest.approx(1 + 40 + 20 + 40 * 0.3 + 1)


def test_a_prompt_beside_decoding_adds_the_share_of_its_work_that_is_not_hidden() -> None:
    alone = step_s(COSTS, decoding=2, cached_tokens=100)
    beside = step_s(COSTS, decoding=2, cached_tokens=100, prompt_tokens=10, pairs=50)
    assert beside - alone == pytest.approx(0.75 * (10 * 1.6 + 0.05))


def test_a_prompt_alone_takes_the_longer_of_reading_weights_and_computing() -> None:
    short, long = (step_s(COSTS, decoding=0, cached_tokens=0, prompt_tokens=tokens) for tokens in (4.0, 40.0))
    assert short == pytest.approx(1 + 8 + 10 * (1 - 0.5**4) + 0.4)
    assert long == pytest.approx(1 + 40 + 20 + 4)


def test_without_experts_nothing_is_read_for_them() -> None:
    dense = replace(COSTS, experts_s=0.0, expert_share=0.0, expert_token_s=0.0)
    assert step_s(dense, decoding=2, cached_tokens=0) == pytest.approx(1 + 8 + 0.6)
