"""Fitted curves as the simulator's server model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.errors import UnknownNameError
from fleet.gpus import builtin_gpus
from power.measured_models import builtin_curves
from power.measured_models.servers import clock_exponent, engine_of, server_model
from power.server_model import BLOOM_A100

A100, H100, B200 = (builtin_gpus().get(name) for name in ("A100-80GB", "H100", "B200"))
CURVES = builtin_curves()


def test_bloom_on_a100_is_close_to_the_published_values() -> None:
    server = server_model(CURVES, A100, model="BLOOM-176B")
    assert server.gpus == 8
    assert server.idle_w == pytest.approx(BLOOM_A100.idle_w, rel=0.02)
    assert server.prompt_w() == pytest.approx(BLOOM_A100.prompt_w(), rel=0.02)
    assert server.token_w() == pytest.approx(BLOOM_A100.token_w(), rel=0.05)
    assert server.token_s == pytest.approx(BLOOM_A100.token_s, rel=0.02)
    for tokens in (512, 2048, 8192):
        assert server.prompt_time_s(tokens) == pytest.approx(BLOOM_A100.prompt_time_s(tokens), rel=0.15)


def test_a_fuller_batch_draws_more_on_h100() -> None:
    few, many = (server_model(CURVES, H100, model="Llama-3.1-8B-Instruct", together=n) for n in (8, 128))
    assert many.token_w(1.0, 128) > 1.1 * few.token_w(1.0, 8)


@pytest.mark.parametrize("together", [8, 64, 256, 512])
def test_the_server_draws_the_measured_power_of_the_engine(together: int) -> None:
    engine = engine_of(CURVES, H100, model="Llama-3.1-70B-Instruct")
    server = server_model(CURVES, H100, model="Llama-3.1-70B-Instruct", together=together)
    boards_w = (server.token_w(1.0, together) - server.base_w) / server.beside
    assert boards_w == pytest.approx(engine.share(together) * (H100.tdp_w or 0.0) * engine.gpus, rel=1e-3)


@given(st.floats(0.3, 1), st.floats(0.4, 1.05), st.floats(0.1, 0.16))
def test_the_clock_exponent_approximates_the_clock_curve(clock: float, share: float, idle: float) -> None:
    exponent = clock_exponent(share, idle, CURVES.clock)
    wanted = share * CURVES.clock.left(clock)
    assert idle + (share - idle) * clock**exponent == pytest.approx(wanted, rel=0.12)


@given(st.floats(0.3, 1))
def test_prompt_power_follows_the_clock_curve(clock: float) -> None:
    prompt = server_model(CURVES, A100, model="bloom-176b").prompt
    assert prompt.watts(clock) == pytest.approx(prompt.watts(1.0) * CURVES.clock.left(clock))


def test_prompt_times_come_from_another_board_if_not_measured() -> None:
    b200, h100 = (server_model(CURVES, gpu, model="Llama-3.3-70B-Instruct", together=16) for gpu in (B200, H100))
    per_board = [one.prompt_time_s(8192) * one.gpus for one in (b200, h100)]
    assert per_board[0] < per_board[1]


def test_unknown_engines_are_named_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"nearest: meta-llama/Llama-3\.1-70B-Instruct"):
        server_model(CURVES, H100, model="meta-llama/Llama-3.1-7OB-Instruct")
    with pytest.raises(RuleError, match=r"layout: must be among those measured of bloom-176b: 8 boards, TP8"):
        server_model(CURVES, A100, model="bloom-176b", gpus=2)


def test_a_batch_far_from_the_measured_batches_is_refused() -> None:
    with pytest.raises(RuleError, match="together: must be near the measured batches, 1 to 32, got 500"):
        server_model(CURVES, A100, model="bloom-176b", together=500)
