"""Routing, replays of plans and SLO checks."""

from typing import Any

import numpy as np
import pytest

from fleet.documents import RuleError
from fleet.sizes.histogram import SizeBuckets
from fleet.slo import Metric, Slo, Statistic
from planner.replay import (
    Balancing,
    Routing,
    Stream,
    check_slo,
    replay,
)
from tests.planner.replay.engines import poisson, pool

BUCKETS = SizeBuckets(input_tokens=(1000, 4000), output_tokens=(200,), share=((0.5,), (0.5,)))
EVEN: Routing = {"1000x200": {"A": 0.5, "B": 0.5}, "4000x200": {"A": 1.0}}


def slo(**limits: dict[str, float]) -> Slo:
    return Slo.model_validate(limits)


def mixed(requests: int = 4000, *, rate_rps: float = 4.0, long: float = 0.3) -> Stream:
    """Short and long requests."""
    rng = np.random.default_rng(3)
    is_long = rng.random(requests) < long
    return Stream.of(
        times_s=np.cumsum(rng.exponential(1 / rate_rps, size=requests)),
        input_tokens=np.where(is_long, 3000, 300),
        output_tokens=rng.integers(1, 200, size=requests),
    )


class TestRouting:
    def test_requests_follow_the_weights_of_their_bucket(self) -> None:
        stream = mixed()
        routing = {"1000x200": {"A": 0.25, "B": 0.75}, "4000x200": {"B": 2.0}}
        result = replay(stream, [pool(option="A"), pool(option="B")], routing, BUCKETS, seed=1)
        long = stream.input_tokens > 1000
        assert (result.option[long] == 1).all()
        assert np.mean(result.option[~long] == 0) == pytest.approx(0.25, abs=0.03)

    def test_a_request_longer_than_the_last_edge_is_in_the_last_bucket(self) -> None:
        stream = Stream.of(times_s=[0.0], input_tokens=[50_000], output_tokens=[900])
        result = replay(stream, [pool(option="A")], {"4000x200": {"A": 1.0}}, BUCKETS, seed=1)
        assert (result.unrouted, result.too_long) == (0, 0)

    def test_a_bucket_without_weights_is_not_served(self) -> None:
        result = replay(mixed(), [pool(option="A")], {"1000x200": {"A": 1.0}}, BUCKETS, seed=1)
        assert result.unrouted == int((result.stream.input_tokens > 1000).sum())
        check = check_slo(result, slo(ttft_ms={"mean": 10_000.0}))
        assert not check.verified
        assert check.not_served == result.unrouted
        assert check.limits[0].measured_ms is None
        assert any("sizes without a route" in note for note in check.notes)

    @pytest.mark.parametrize(
        ("routing", "message"),
        [
            ({"7x7": {"A": 1.0}}, "is not a bucket"),
            ({"1000x200": {"C": 1.0}}, "has no pool"),
            ({"1000x200": {"A": -1.0}}, "out of range"),
        ],
    )
    def test_invalid_weights_are_refused(self, routing: Routing, message: str) -> None:
        with pytest.raises(RuleError, match=message):
            replay(mixed(10), [pool(option="A")], routing, BUCKETS, seed=1)


class TestReplay:
    POOLS = (pool(2, "A"), pool(1, "B"))

    def test_results_depend_on_the_arguments_and_the_seed_only(self) -> None:
        one, same, other = (replay(mixed(), self.POOLS, EVEN, BUCKETS, seed=seed) for seed in (1, 1, 2))
        assert np.array_equal(one.ttft_s, same.ttft_s)
        assert not np.array_equal(one.ttft_s, other.ttft_s)

    def test_the_draws_of_a_pool_do_not_depend_on_other_pools(self) -> None:
        """Removing a replica of one option affects that option alone."""
        one = replay(mixed(), self.POOLS, EVEN, BUCKETS, seed=1, balancing=Balancing.POWER_OF_TWO)
        more = replay(mixed(), (pool(2, "A"), pool(5, "B")), EVEN, BUCKETS, seed=1, balancing=Balancing.POWER_OF_TWO)
        on_a = one.option == 0
        assert np.array_equal(one.e2e_s[on_a], more.e2e_s[on_a])
        assert more.e2e_s[~on_a].mean() < one.e2e_s[~on_a].mean()

    def test_latencies_satisfy_their_definitions(self) -> None:
        result = replay(mixed(), self.POOLS, EVEN, BUCKETS, seed=1)
        outputs = result.stream.output_tokens
        several = outputs > 1
        assert np.isnan(result.tpot_s[~several]).all()
        assert result.e2e_s[several] == pytest.approx((result.ttft_s + result.tpot_s * (outputs - 1))[several])
        assert result.e2e_s[~several] == pytest.approx(result.ttft_s[~several])

    def test_a_known_result_is_reused_only_for_unchanged_pools(self) -> None:
        stream = mixed()
        known = replay(stream, self.POOLS, EVEN, BUCKETS, seed=1)
        fewer = (pool(1, "A"), pool(1, "B"))
        again = replay(stream, fewer, EVEN, BUCKETS, seed=1, known=known)
        fresh = replay(stream, fewer, EVEN, BUCKETS, seed=1)
        assert again.runs[fewer[1]][1] is known.runs[fewer[1]][1]
        assert np.array_equal(again.e2e_s, fresh.e2e_s)
        other = replay(stream, fewer, EVEN, BUCKETS, seed=2, known=known)
        assert other.runs[fewer[1]][1] is not known.runs[fewer[1]][1]

    def test_the_warm_up_is_excluded_from_the_check(self) -> None:
        stream = poisson(rate_rps=2.0, requests=2000)
        result = replay(stream, [pool(option="A")], {"1000x200": {"A": 1.0}}, BUCKETS, seed=1, warm_up_s=100.0)
        assert len(result.samples_ms(Metric.TTFT)) == int((stream.arrival_s >= 100.0).sum())
        default = replay(stream, [pool(option="A")], {"1000x200": {"A": 1.0}}, BUCKETS, seed=1)
        assert default.warm_up_s == pytest.approx(0.1 * stream.duration_s)

    def test_two_pools_of_one_option_are_refused(self) -> None:
        with pytest.raises(RuleError, match="same option"):
            replay(mixed(10), [pool(option="A"), pool(2, option="A")], EVEN, BUCKETS, seed=1)

    def test_requests_left_over_at_the_end_are_counted_and_checked(self) -> None:
        stream = mixed(2000, rate_rps=200.0)
        result = replay(stream, self.POOLS, EVEN, BUCKETS, seed=1)
        assert result.left_over > 100
        assert np.isfinite(result.e2e_s).all()
        assert result.left_over == sum(one.left_over for one in result.pools)


class TestSloCheck:
    def test_a_plan_is_verified_only_if_every_limit_holds(self) -> None:
        result = replay(mixed(), (pool(2, "A"), pool(1, "B")), EVEN, BUCKETS, seed=1)
        measured = {metric: result.measured_ms(metric, Statistic.P99) for metric in Metric}
        at_it = slo(**{metric.value: {"p99": value} for metric, value in measured.items()})
        assert check_slo(result, at_it).verified
        for metric in Metric:
            below = slo(**{each.value: {"p99": measured[each] * (0.999 if each is metric else 1)} for each in Metric})
            check = check_slo(result, below)
            assert not check.verified
            assert [limit.metric for limit in check.broken] == [metric]
            assert "broken" in str(check.broken[0])

    def test_too_few_requests_for_a_percentile_are_reported(self) -> None:
        result = replay(mixed(500), (pool(2, "A"), pool(1, "B")), EVEN, BUCKETS, seed=1, warm_up_s=0.0)
        check = check_slo(result, slo(ttft_ms={"p50": 1000.0, "p99": 5000.0}))
        assert [limit.enough for limit in check.limits] == [True, False]
        assert check.notes == ("p99 TTFT rests on 500 requests, fewer than 1,000",)

    def test_rejected_requests_break_p99_above_one_percent(self) -> None:
        limits = slo(e2e_ms={"p99": 60_000.0})
        for turned_away, verified in ((2, True), (30, False)):
            outputs = np.full(2000, 100)
            outputs[:turned_away] = 500_000
            stream = Stream.of(
                times_s=[0.5 * number for number in range(2000)], input_tokens=[100] * 2000, output_tokens=outputs
            )
            result = replay(stream, [pool(2, "A")], {"1000x200": {"A": 1.0}}, BUCKETS, seed=1, warm_up_s=0.0)
            check = check_slo(result, limits)
            assert (check.verified, check.not_served) == (verified, turned_away)

    def test_a_limit_on_a_metric_of_no_request_holds(self) -> None:
        stream = Stream.of(times_s=[0.0, 1.0], input_tokens=[10, 10], output_tokens=[1, 1])
        result = replay(stream, [pool(option="A")], {"1000x200": {"A": 1.0}}, BUCKETS, seed=1)
        assert check_slo(result, slo(tpot_ms={"mean": 1.0})).verified

    def test_an_slo_check_survives_json(self) -> None:
        check = check_slo(
            replay(mixed(), (pool(2, "A"), pool(1, "B")), EVEN, BUCKETS, seed=1), slo(ttft_ms={"p99": 900.0})
        )
        assert type(check).model_validate_json(check.model_dump_json()) == check


class TestPools:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"max_sequences": 300, "chunk_tokens": 256}, "costs.max_sequences: 300 is out of range"),
            ({"cache_tokens": 0}, "cache_tokens"),
            ({"fixed_s": 0.0, "weights_s": 0.0, "token_s": 0.0, "sequence_s": 0.0, "traffic_s": 0.0}, "takes 0 s"),
            ({"request_s": -1.0}, "negative"),
        ],
    )
    def test_an_invalid_engine_is_refused(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(RuleError, match=message):
            pool(**changes)

    def test_a_pool_without_replicas_is_refused(self) -> None:
        with pytest.raises(RuleError, match="replicas: 0 is out of range"):
            pool(0)
