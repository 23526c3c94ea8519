"""The built-in generator: sizes and rates follow the mix and the load profile."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.documents import RuleError
from power.controls import Priority
from power.server_model import BLOOM_A100
from power.workload import POLCA_MIX, Work
from power.workload.generated import generated_work
from power.workload.load_profile import Curve
from power.workload.request_classes import Mix, RequestClass

FLAT = Curve(3600.0, np.ones(25))


def test_a_fortnight_on_64_servers_has_about_a_million_requests() -> None:
    work = generated_work(servers=64, seed=1)
    assert work.duration_s == 14 * 86_400
    assert 900_000 < len(work.arrival_s) < 1_200_000


def test_equal_seeds_give_equal_work_and_different_seeds_do_not() -> None:
    one, again, other = (generated_work(servers=8, days=1, seed=seed) for seed in (1, 1, 2))
    for name in ("arrival_s", "pool", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert len(one.arrival_s) != len(other.arrival_s)


@pytest.mark.parametrize("utilization", [0.4, 0.8])
def test_every_pool_has_the_given_utilisation_at_the_peak(utilization: float) -> None:
    work = generated_work(servers=40, days=14, seed=2, shape=FLAT, peak_utilization=utilization)
    for at, pool in enumerate(work.pools):
        assert _busy_s(work, at) / (pool.servers * work.duration_s) == pytest.approx(utilization, rel=0.02)


def test_the_load_is_proportional_to_the_servers() -> None:
    few, many = (generated_work(servers=servers, seed=3, shape=FLAT) for servers in (40, 60))
    assert len(many.arrival_s) / len(few.arrival_s) == pytest.approx(1.5, rel=0.01)


def test_arrivals_follow_the_load_profile() -> None:
    curve = Curve(3600.0, np.array([0.2, 1.0, 0.2] * 8 + [0.2]))
    work = generated_work(servers=400, days=1, seed=4, shape=curve)
    counted, edges = np.histogram(work.arrival_s, bins=96, range=(0, work.duration_s))
    expected = curve.at((edges[1:] + edges[:-1]) / 2)
    expected *= counted.sum() / expected.sum()
    assert np.abs(counted - expected).max() < 5 * np.sqrt(expected.max())


def test_gaps_are_those_of_a_poisson_process() -> None:
    """Under a flat rate the gaps' standard deviation is their mean."""
    gaps = np.diff(generated_work(servers=40, days=2, seed=5, shape=FLAT).arrival_s)
    assert float(gaps.std() / gaps.mean()) == pytest.approx(1.0, abs=0.03)


def test_sizes_fill_their_ranges_evenly() -> None:
    work = generated_work(servers=40, days=14, seed=6)
    for at, kind in enumerate(POLCA_MIX.kinds):
        for tokens, (low, high) in (
            (work.prompt_tokens[work.pool == at], kind.prompt_tokens),
            (work.output_tokens[work.pool == at], kind.output_tokens),
        ):
            assert (tokens.min(), tokens.max()) == pytest.approx((low, high), rel=0.01)
            assert low <= tokens.min()
            assert tokens.max() <= high
            assert float(tokens.mean()) == pytest.approx((low + high) / 2, rel=0.01)


def test_half_the_servers_of_polcas_mix_are_low_priority() -> None:
    pools = POLCA_MIX.pools(52)
    assert [pool.servers for pool in pools] == [13, 13, 13, 13]
    assert sum(pool.servers for pool in pools if pool.priority is Priority.LOW) == 26


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(0, 200))
def test_pools_are_never_empty_and_hold_all_servers(weights: list[int], more: int) -> None:
    servers = len(weights) + more
    mix = Mix(kinds=tuple(_kind(str(at), weight / sum(weights)) for at, weight in enumerate(weights)))
    sizes = [pool.servers for pool in mix.pools(servers)]
    assert sum(sizes) == servers
    assert min(sizes) >= 1


@given(st.integers(1, 400), st.integers(0, 50))
def test_the_mean_prompt_time_is_over_whole_token_counts(low: int, width: int) -> None:
    kind = _kind("x", 1.0, prompt=(low, low + width))
    brute = float(np.mean([BLOOM_A100.prompt_time_s(tokens) for tokens in range(low, low + width + 1)]))
    assert kind.mean_service_s(BLOOM_A100) == pytest.approx(brute + BLOOM_A100.token_s * 5.5)


def test_a_year_on_a_thousand_servers_is_refused_before_it_fills_memory() -> None:
    with pytest.raises(RuleError, match="requests, expected at most"):
        generated_work(servers=1000, days=365)


def test_fewer_servers_than_kinds_are_refused() -> None:
    with pytest.raises(RuleError, match="at least 4"):
        generated_work(servers=3)


@pytest.mark.parametrize("utilization", [0.0, -1.0, 2.0])
def test_a_load_out_of_range_is_refused(utilization: float) -> None:
    with pytest.raises(RuleError, match="peak_utilization"):
        generated_work(servers=4, days=1, peak_utilization=utilization)


def test_shares_that_do_not_add_up_to_one_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"add up to 1, got 0\.5"):
        Mix(kinds=(_kind("x", 0.5),))


def test_a_range_that_falls_is_refused() -> None:
    with pytest.raises(ValidationError, match="from the lower to the higher"):
        _kind("x", 1.0, prompt=(10, 5))


def _kind(name: str, share: float, prompt: tuple[int, int] = (10, 20)) -> RequestClass:
    return RequestClass(name=name, priority=Priority.LOW, prompt_tokens=prompt, output_tokens=(1, 10), share=share)


def _busy_s(work: Work, at: int) -> float:
    chosen = work.pool == at
    s0, s1, s2 = BLOOM_A100.prompt_s
    prompt = work.prompt_tokens[chosen]
    return float((s0 + s1 * prompt + s2 * prompt**2 + BLOOM_A100.token_s * work.output_tokens[chosen]).sum())
