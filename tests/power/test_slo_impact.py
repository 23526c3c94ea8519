"""Latency impact over the same requests, without dropping any."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from power.controls import Priority
from power.slo_impact import POLCA_SLO, Impact, latency_impact, slo_holds

times = st.lists(st.floats(0.1, 1000), min_size=1, max_size=200)


@given(times)
def test_unchanged_latencies_have_no_impact(latencies: list[float]) -> None:
    same = np.array(latencies)
    assert latency_impact(uncapped_s=same, capped_s=same) == Impact(0.0, 0.0, 0.0, len(same), 0)


@given(times, st.floats(1, 3))
def test_a_common_factor_on_all_latencies_is_the_impact(latencies: list[float], factor: float) -> None:
    before = np.array(latencies)
    impact = latency_impact(uncapped_s=before, capped_s=factor * before)
    assert (impact.p50, impact.p99) == pytest.approx((factor - 1, factor - 1))


@given(times, st.integers(0, 2**32 - 1))
def test_longer_requests_never_reduce_the_impact(latencies: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = np.array(latencies)
    after = before * rng.uniform(0.5, 2, len(before))
    worse = after + rng.uniform(0, 10, len(before))
    one, other = (latency_impact(uncapped_s=before, capped_s=capped) for capped in (after, worse))
    assert other.p50 >= one.p50
    assert other.p99 >= one.p99


@given(times)
def test_quantiles_agree_with_numpy(latencies: list[float]) -> None:
    before = np.arange(1.0, len(latencies) + 1)
    after = np.array(latencies)
    impact = latency_impact(uncapped_s=before, capped_s=after)
    for share, found in ((0.5, impact.p50), (0.99, impact.p99)):
        expected = np.quantile(after, share, method="inverted_cdf") / np.quantile(before, share, method="inverted_cdf")
        assert found == pytest.approx(float(expected) - 1)


@pytest.mark.parametrize("missing", [nan, inf])
def test_unfinished_requests_count_as_longest(missing: float) -> None:
    before = np.ones(1000)
    after = np.ones(1000)
    after[:10] = missing
    impact = latency_impact(uncapped_s=before, capped_s=after)
    assert (impact.p99, impact.unfinished) == (0.0, 10)  # just one in a hundred
    after[10] = missing
    impact = latency_impact(uncapped_s=before, capped_s=after)
    assert (impact.p50, impact.p99, impact.unfinished) == (0.0, inf, 11)
    assert impact.throughput == pytest.approx(-0.011)


def test_requests_that_the_uncapped_run_did_not_finish_are_excluded() -> None:
    before, after = np.array([1.0, 1.0, nan]), np.array([1.0, 2.0, 900.0])
    impact = latency_impact(uncapped_s=before, capped_s=after)
    assert (impact.requests, impact.p99) == (2, 1.0)
    assert impact.throughput == pytest.approx(0.5)


def test_only_the_chosen_requests_count() -> None:
    before, after = np.ones(4), np.array([1.0, 1.0, 5.0, 5.0])
    high = np.array([False, False, True, True])
    assert latency_impact(uncapped_s=before, capped_s=after, chosen=high).p50 == 4.0
    assert latency_impact(uncapped_s=before, capped_s=after, chosen=~high).p50 == 0.0
    assert latency_impact(uncapped_s=before, capped_s=after, chosen=high & ~high).requests == 0


def test_runs_with_different_request_counts_are_refused() -> None:
    with pytest.raises(RuleError, match="same 3 requests, got 2"):
        latency_impact(uncapped_s=np.ones(3), capped_s=np.ones(2))


@pytest.mark.parametrize(
    ("priority", "p50", "p99"), [(Priority.HIGH, 0.01, 0.05), (Priority.HIGH, -1.0, 0.0), (Priority.LOW, 0.05, 0.5)]
)
def test_impacts_within_polcas_limits_meet_the_slo(priority: Priority, p50: float, p99: float) -> None:
    assert slo_holds({priority: Impact(p50, p99, 0.0, 1, 0)}, POLCA_SLO)


@pytest.mark.parametrize(
    ("priority", "p50", "p99"),
    [
        (Priority.HIGH, 0.011, 0.0),
        (Priority.HIGH, 0.0, 0.051),
        (Priority.LOW, 0.051, 0.0),
        (Priority.LOW, 0.0, inf),
    ],
)
def test_impacts_beyond_polcas_limits_break_the_slo(priority: Priority, p50: float, p99: float) -> None:
    assert not slo_holds({priority: Impact(p50, p99, 0.0, 1, 0)}, POLCA_SLO)
