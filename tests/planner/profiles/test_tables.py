"""Rates from sweeps, and tables from rates: conservative against a replica with a known latency curve."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.sizes.histogram import SizeBuckets
from fleet.slo import LatencyLimits, Slo
from planner.profiles import Basis, MeasuredPoint, merged, throughput_from_points
from planner.profiles.interpolation import Cell, at_size, scaled_run
from planner.profiles.load_curves import End, SustainedRate, held
from planner.profiles.points import Latency
from planner.throughput import Throughput, ThroughputSource

TPOT_40 = Slo(tpot_ms=LatencyLimits(mean=40))
TTFT_1S = Slo(ttft_ms=LatencyLimits(p99=1000))


def point(
    load: float,
    tpot_ms: float = 20,
    *,
    size: tuple[float, float] = (1000, 100),
    rate: float | None = None,
    closed: bool = False,
    failed: int = 0,
    ttft_ms: Latency | None = None,
    source: str = "lab",
) -> MeasuredPoint:
    return MeasuredPoint(
        model="M",
        gpu="L4",
        input_tokens=size[0],
        output_tokens=size[1],
        offered_rps=None if closed else load,
        concurrency=load if closed else None,
        achieved_rps=load if rate is None else rate,
        tpot_ms=Latency(mean=tpot_ms),
        ttft_ms=ttft_ms or Latency(),
        requests=100,
        failed=failed,
        source=source,
    )


def sweep(points: list[MeasuredPoint], slo: Slo = TPOT_40) -> SustainedRate:
    found = held(points, slo)
    assert found is not None
    return found


class TestSweep:
    def test_the_rate_lies_between_the_last_met_and_the_first_missed_level(self) -> None:
        found = sweep([point(8, 60), point(1, 10), point(4, 30), point(2, 15)])
        assert [found.rate_rps, found.low_rps, found.high_rps] == pytest.approx([4 + 4 / 3, 4, 8])
        assert found.end is End.ENCLOSED

    def test_the_first_limit_to_be_exceeded_decides(self) -> None:
        slo = Slo(tpot_ms=LatencyLimits(mean=40), ttft_ms=LatencyLimits(mean=100))
        points = [point(4, 30, ttft_ms=Latency(mean=50)), point(8, 60, ttft_ms=Latency(mean=450))]
        assert sweep(points, slo).rate_rps == pytest.approx(4 + 4 / 8)

    def test_a_sweep_that_meets_every_level_bounds_only_from_below(self) -> None:
        found = sweep([point(1, 10), point(4, 30)])
        assert (found.rate_rps, found.low_rps, found.high_rps, found.end) == (4, 4, inf, End.NEVER_FAILED)

    def test_a_sweep_that_misses_every_level_bounds_only_from_above(self) -> None:
        found = sweep([point(4, 50), point(8, 60)])
        assert (found.rate_rps, found.low_rps, found.high_rps, found.end) == (0, 0, 4, End.ALWAYS_FAILED)
        assert not found.cannot_serve

    def test_a_single_request_that_is_too_slow_cannot_be_served(self) -> None:
        assert sweep([point(1, 50, rate=0.3, closed=True)]).cannot_serve

    def test_levels_past_saturation_do_not_raise_the_rate(self) -> None:
        """Past saturation the rate falls; the last sustained rate counts."""
        found = sweep([point(4, 30), point(8, 60, rate=3.5)])
        assert (found.rate_rps, found.high_rps) == (4, 4)

    def test_a_level_met_after_a_missed_one_does_not_count(self) -> None:
        assert sweep([point(2, 30), point(4, 41), point(8, 20)]).high_rps == 4

    def test_failed_requests_fail_a_level(self) -> None:
        found = sweep([point(2, 10), point(4, 10, failed=50)])
        assert (found.rate_rps, found.end) == (2, End.ENCLOSED)

    def test_a_missing_percentile_is_checked_with_the_next_higher_one(self) -> None:
        slo = Slo(ttft_ms=LatencyLimits(p90=1000))
        points = [point(2, ttft_ms=Latency(p99=900)), point(4, ttft_ms=Latency(p99=1100))]
        assert sweep(points, slo).rate_rps == pytest.approx(3)
        assert held([point(2, ttft_ms=Latency(p50=5))], slo) is None

    def test_open_loop_runs_take_precedence_over_closed_loop_runs(self) -> None:
        closed = [point(16, 10, rate=9, closed=True), point(64, 60, rate=12, closed=True)]
        found = sweep([*closed, point(2, 10), point(4, 80)])
        assert found.open_loop
        assert found.high_rps == 4
        assert not sweep(closed).open_loop

    def test_repeats_that_differ_widen_the_interval(self) -> None:
        steady = sweep([point(4, 30, rate=4.0), point(4, 30, rate=4.0), point(8, 60)])
        shaky = sweep([point(4, 30, rate=3.6), point(4, 30, rate=4.4), point(8, 60)])
        assert shaky.rate_rps == pytest.approx(steady.rate_rps)
        assert shaky.low_rps < steady.low_rps == 4
        assert shaky.high_rps > steady.high_rps == 8

    def test_the_interval_of_repeats_holds_90_percent_of_new_runs(self) -> None:
        rng = np.random.default_rng(4)
        inside = 0
        for _ in range(400):
            runs, new = rng.normal(10, 0.5, 5), rng.normal(10, 0.5)
            found = sweep([point(10, 10, rate=float(rate)) for rate in runs] + [point(12, 99, rate=1.0)])
            inside += found.low_rps <= new <= found.high_rps
        assert 0.85 <= inside / 400 <= 0.98

    @given(st.floats(20, 200), st.lists(st.floats(0.05, 0.98), min_size=2, max_size=8, unique=True))
    def test_the_rate_never_exceeds_the_true_rate_of_a_convex_latency(self, limit_ms: float, busy: list[float]) -> None:
        """TPOT of 10 / (1 - busy) ms, the wait of an M/M/1 queue, at a capacity of 100 requests/s."""
        points = [point(100 * share, 10 / (1 - share)) for share in busy]
        found = sweep(points, Slo(tpot_ms=LatencyLimits(mean=limit_ms)))
        truth = 100 * max(0.0, 1 - 10 / limit_ms)
        assert found.rate_rps <= truth + 1e-6
        assert found.low_rps <= truth + 1e-6
        assert found.high_rps >= truth - 1e-6 or found.end is End.NEVER_FAILED


def true_rate(size: tuple[float, float], a: float = 1.0, b: float = 8.0) -> float:
    """A replica whose time is prefill plus decode; the log-log slopes of its rate are between 0 and -1."""
    return 1e5 / (a * size[0] + b * size[1] + 300)


def measured_at(*sizes: tuple[float, float]) -> list[MeasuredPoint]:
    """Two runs around the true rate of each size, so close that the sweep gives exactly that rate."""
    loads = [(size, true_rate(size)) for size in sizes]
    return [run for size, rate in loads for run in (point(rate, 40, size=size), point(rate * 1.021, 80, size=size))]


def even(inputs: list[int], outputs: list[int]) -> SizeBuckets:
    share = 1 / (len(inputs) * len(outputs))
    shares = tuple((share,) * len(outputs) for _ in inputs)
    return SizeBuckets(input_tokens=tuple(inputs), output_tokens=tuple(outputs), share=shares)


CORNERS = [(500.0, 50.0), (500.0, 800.0), (4000.0, 50.0), (4000.0, 800.0)]


def computed(
    rates: list[list[float]],
    interval: tuple[float, float] | None = None,
    *,
    provenance: ThroughputSource = ThroughputSource.CALIBRATED,
) -> Throughput:
    return Throughput(
        max_rps=tuple(map(tuple, rates)), provenance=provenance, interval_90=interval, interval_note="predicted"
    )


class TestBetweenSizes:
    def cell(self, size: tuple[float, float], points: list[MeasuredPoint], lower: tuple[float, float] = (0, 0)) -> Cell:
        by_size: dict[tuple[float, float], list[MeasuredPoint]] = {}
        for each in points:
            by_size.setdefault((each.input_tokens, each.output_tokens), []).append(each)
        sweeps = {known: sweep(group) for known, group in by_size.items()}
        return at_size(size, lower=lower, sweeps=sweeps, slo=TPOT_40)

    def test_a_measured_size_has_its_measured_rate(self) -> None:
        found = self.cell((510, 49), measured_at(*CORNERS))
        assert found.basis is Basis.MEASURED
        assert found.max_rps == pytest.approx(true_rate((500, 50)), rel=1e-9)

    @given(st.floats(540, 3700), st.floats(54, 740))
    def test_inside_a_rectangle_the_interval_contains_the_true_rate(self, inputs: float, outputs: float) -> None:
        found = self.cell((inputs, outputs), measured_at(*CORNERS))
        truth = true_rate((inputs, outputs))
        assert found.basis is Basis.INTERPOLATED
        assert found.low_rps * 0.999 <= truth <= found.high_rps * 1.001
        assert (
            found.max_rps <= truth * 1.001
        )  # the logarithm of the true rate is concave, so the interpolation is conservative

    @given(st.floats(540, 3700))
    def test_on_the_edge_of_a_rectangle_two_sizes_suffice(self, inputs: float) -> None:
        found = self.cell((inputs, 51), measured_at((500, 50), (4000, 50)))
        assert found.basis is Basis.INTERPOLATED
        assert found.low_rps * 0.99 <= true_rate((inputs, 51)) <= found.high_rps * 1.01

    @given(
        st.lists(st.tuples(st.floats(100, 8000), st.floats(10, 1000)), min_size=1, max_size=6),
        st.floats(100, 8000),
        st.floats(10, 1000),
    )
    def test_the_bounds_contain_the_true_rate_for_any_measured_sizes(
        self, sizes: list[tuple[float, float]], inputs: float, outputs: float
    ) -> None:
        found = self.cell((inputs, outputs), measured_at(*sizes))
        slack = 1.12  # sizes that differ by less than 5 % count as equal
        assert found.low_rps / slack <= true_rate((inputs, outputs)) <= found.high_rps * slack
        assert found.low_rps <= found.max_rps <= found.high_rps or found.basis is Basis.NONE

    @given(st.floats(100, 8000), st.floats(10, 1000), st.floats(1, 3), st.floats(1, 3))
    def test_a_larger_request_never_gets_a_higher_rate(self, i: float, o: float, more_i: float, more_o: float) -> None:
        points = measured_at(*CORNERS)
        small, large = self.cell((i, o), points), self.cell((i * more_i, o * more_o), points)
        if Basis.NONE not in (small.basis, large.basis):
            assert large.max_rps <= small.max_rps * 1.11

    def test_a_larger_size_bounds_sizes_down_to_half_of_it(self) -> None:
        points = measured_at((1000, 100))
        found = self.cell((600, 90), points)
        assert found.basis is Basis.LARGER
        assert found.max_rps == pytest.approx(true_rate((1000, 100)))
        far = self.cell((400, 90), points)
        assert far.basis is Basis.NONE
        assert far.reason == "is too far from any measured size"
        assert far.between(0.001) == pytest.approx(true_rate((1000, 100)))

    def test_extrapolation_stays_within_the_bucket_and_is_conservative(self) -> None:
        points = measured_at((1000, 100))
        points += [point(1, 10, size=(1000, 100))]
        found = self.cell((1200, 110), points, lower=(800, 80))
        assert found.basis is Basis.SCALED
        assert 0 < found.max_rps < true_rate((1200, 110)) < found.high_rps
        outside = self.cell((1200, 110), points, lower=(1000, 80))
        assert outside.basis is Basis.NONE
        assert outside.reason == "lies beyond the measured input and output sizes"
        assert outside.between(1e9) == pytest.approx(true_rate((1000, 100)) * 1.021)

    def test_a_scaled_run_satisfies_littles_law_with_fewer_requests_in_flight(self) -> None:
        start = MeasuredPoint(
            model="M",
            gpu="L4",
            input_tokens=1000,
            output_tokens=100,
            concurrency=10,
            achieved_rps=5,
            e2e_ms=Latency(mean=2000),
            ttft_ms=Latency(mean=100),
            tpot_ms=Latency(mean=19),
            source="lab",
        )
        there = scaled_run(start, (2000, 200))
        assert (there.ttft_ms.mean, there.tpot_ms.mean, there.e2e_ms.mean) == (400, 38, 8000)
        assert there.achieved_rps == pytest.approx((10 / 2) / 8)  # half as many in flight, four times the latency
        assert scaled_run(start, (500, 50)) == start

    def test_a_size_that_cannot_be_served_rules_out_larger_ones(self) -> None:
        found = self.cell((2000, 200), [point(1, 50, rate=0.3, closed=True)])
        assert (found.basis, found.between(7.0)) == (Basis.NONE, 0.0)


class TestTable:
    def test_a_bucket_uses_the_rate_at_its_upper_edges(self) -> None:
        points = measured_at(*CORNERS)
        buckets = even([500, 4000], [50, 800])
        found = throughput_from_points(points, buckets=buckets, slo=TPOT_40)
        truth = [[true_rate((i, o)) for o in (50, 800)] for i in (500, 4000)]
        assert [[cell.max_rps for cell in row] for row in found.cells] == [pytest.approx(row) for row in truth]
        assert all(cell.basis is not Basis.NONE for row in found.cells for cell in row)
        assert str(found.evidence) == "8 measured runs at 4 sizes, undated, from lab"

    def test_a_measured_rate_replaces_and_bounds_computed_rates(self) -> None:
        points = measured_at((1000, 100))
        buckets = even([300, 1000, 8000], [100])
        found = throughput_from_points(points, buckets=buckets, slo=TPOT_40)
        rate = true_rate((1000, 100))
        both = merged(found, buckets=buckets, computed=computed([[1.0], [1e6], [1e6]], (0.5, 2.0)))
        assert [row[0] for row in both.max_rps] == [
            pytest.approx(rate),
            pytest.approx(rate),
            pytest.approx(rate * 1.021),
        ]
        assert both.interval_90 == (0.5, 2.0)
        assert both.interval_note == (
            "2 measured runs at 1 size, undated, from lab; 1 of 3 buckets covered (1 measured); "
            "67% of requests are of sizes left to the roofline"
        )

    def test_scaled_runs_only_bound_a_computed_rate(self) -> None:
        points = [*measured_at((1000, 100)), point(1, 10, size=(1000, 100))]
        buckets = even([1200], [110])
        found = throughput_from_points(points, buckets=buckets, slo=TPOT_40)
        (cell,) = found.cells[0]
        assert cell.basis is Basis.SCALED
        truth = true_rate((1200, 110))
        assert merged(found, buckets=buckets, computed=computed([[truth]])).max_rps == ((truth,),)
        assert merged(found, buckets=buckets, computed=computed([[0.001]])).max_rps == ((cell.low_rps,),)
        assert merged(found, buckets=buckets, computed=computed([[truth]])).provenance is ThroughputSource.CALIBRATED

    def test_a_plan_reports_the_basis_of_its_rates(self) -> None:
        points = measured_at((1000, 100))
        buckets = even([1000, 8000], [100])
        found = throughput_from_points(points, buckets=buckets, slo=TPOT_40)
        both = merged(found, buckets=buckets, computed=computed([[1.0], [1.0]]))
        assert both.provenance is ThroughputSource.MEASURED_AND_CALIBRATED
        whole = even([1000], [100])
        alone = throughput_from_points(points, buckets=whole, slo=TPOT_40)
        assert merged(alone, buckets=whole, computed=computed([[1.0]])).provenance is ThroughputSource.MEASURED
        unheard = throughput_from_points(points, buckets=buckets, slo=TTFT_1S)
        roofline = computed([[1.0], [1.0]], provenance=ThroughputSource.ROOFLINE)
        assert merged(unheard, buckets=buckets, computed=roofline).provenance is ThroughputSource.ROOFLINE

    def test_an_slo_without_recorded_statistics_uses_the_fallback(self) -> None:
        points = measured_at((1000, 100))
        buckets = even([1000], [100])
        found = throughput_from_points(points, buckets=buckets, slo=TTFT_1S)
        assert found.cells[0][0].reason == "no run recorded ttft_ms at p99"
        assert merged(found, buckets=buckets, computed=computed([[3.0]])).max_rps == ((3.0,),)

    def test_the_interval_is_the_widest_over_buckets_with_requests(self) -> None:
        points = [point(4, 30), point(8, 60)]
        buckets = SizeBuckets(input_tokens=(1000, 8000), output_tokens=(100,), share=((1.0,), (0.0,)))
        found = throughput_from_points(points, buckets=buckets, slo=TPOT_40)
        both = merged(found, buckets=buckets, computed=computed([[1.0], [1.0]]))
        rate = 4 + 4 / 3
        assert both.interval_90 is not None
        assert list(both.interval_90) == pytest.approx([4 / rate, 8 / rate])

    def test_closed_loop_measurements_are_reported(self) -> None:
        points = [point(8, 30, rate=3, closed=True), point(16, 60, rate=4, closed=True)]
        found = throughput_from_points(points, buckets=even([1000], [100]), slo=TPOT_40)
        assert str(found.evidence).endswith("from lab, all with a fixed number of requests in flight")

    def test_sources_beyond_three_are_counted(self) -> None:
        points = [point(load, 10, source=f"run {load}") for load in range(1, 6)]
        found = throughput_from_points(points, buckets=even([1000], [100]), slo=TPOT_40)
        assert str(found.evidence).endswith("from run 1, run 2, run 3 and 2 more")

    @pytest.mark.parametrize(
        ("points", "message"),
        [
            ([], "there are no points, expected at least one"),
            (
                [point(1), point(1).model_copy(update={"tensor_parallel": 2})],
                r"\[1\]: is of M on L4 tp2, expected all of M on L4 tp1",
            ),
        ],
    )
    def test_points_of_several_configurations_or_none_are_refused(
        self, points: list[MeasuredPoint], message: str
    ) -> None:
        with pytest.raises(RuleError, match=message):
            throughput_from_points(points, buckets=even([1], [1]), slo=TPOT_40)
