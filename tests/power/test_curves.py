"""Power by load and clock: bounds and monotonicity on every board, the shipped shares against their sources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.gpus import GpuSpec, builtin_gpus
from power.curves import Watts, power_curve, replica_power
from power.measured_models import PowerShares, builtin_shares

GPUS = builtin_gpus()
BOARDS = st.sampled_from([gpu for gpu in GPUS.gpus if gpu.tdp_w is not None])
LOADS = st.floats(0, 1)
CLOCKS = st.floats(0.3, 1)


def rises(watts: Watts) -> bool:
    return 0 <= watts.low <= watts.mid <= watts.high


class TestBoards:
    @given(BOARDS, LOADS, CLOCKS)
    def test_power_lies_between_idle_and_the_rating(self, gpu: GpuSpec, load: float, clock: float) -> None:
        curve = power_curve(gpu)
        watts = curve.power_w(load, clock)
        assert rises(watts)
        assert watts.high <= (gpu.tdp_w or 0.0)
        assert curve.idle_w.mid <= watts.mid <= curve.busy_w(clock).mid + 1e-9

    @given(BOARDS, st.tuples(LOADS, LOADS).map(sorted), CLOCKS)
    def test_power_rises_with_load(self, gpu: GpuSpec, loads: list[float], clock: float) -> None:
        low, high = (power_curve(gpu).power_w(load, clock) for load in loads)
        assert low.mid <= high.mid + 1e-9

    @given(BOARDS, LOADS, st.tuples(CLOCKS, CLOCKS).map(sorted))
    def test_power_rises_with_the_clock(self, gpu: GpuSpec, load: float, clocks: list[float]) -> None:
        low, high = (power_curve(gpu).power_w(load, clock) for clock in clocks)
        assert low.mid <= high.mid + 1e-9

    @given(BOARDS, st.floats(0.25, 1), CLOCKS)
    def test_the_planning_line_lies_below_the_curve_and_meets_it_twice(
        self, gpu: GpuSpec, load: float, clock: float
    ) -> None:
        curve = power_curve(gpu)
        standing_w, busy_w = curve.standing_w(clock), curve.busy_w(clock).mid

        def line_w(at: float) -> float:
            return standing_w + (busy_w - standing_w) * at

        assert line_w(load) <= curve.power_w(load, clock).mid * (1 + 1e-9)
        assert line_w(0.25) == pytest.approx(curve.power_w(0.25, clock).mid)
        assert curve.idle_w.mid <= standing_w <= busy_w

    def test_a_board_without_measurements_has_wider_spreads(self) -> None:
        measured, other = power_curve(GPUS.get("H100-SXM")), power_curve(GPUS.get("H200-SXM"))
        assert (measured.board.measured, other.board.measured) == (True, False)
        assert measured.gpu.tdp_w == other.gpu.tdp_w
        assert other.busy_w().low < measured.busy_w().low
        assert other.busy_w().high > measured.busy_w().high


class TestClocks:
    @given(CLOCKS)
    def test_compute_speed_follows_the_clock_and_memory_speed_falls_less(self, clock: float) -> None:
        curve = power_curve(GPUS.get("H100-SXM"))
        compute, memory = curve.speed(clock, "compute"), curve.speed(clock, "memory")
        assert compute.mid == pytest.approx(clock)
        assert compute.mid <= memory.mid <= 1
        assert memory.low <= memory.mid <= memory.high == 1

    def test_the_published_point_lies_on_the_curve(self) -> None:
        """POLCA (arXiv 2308.12908): up to 20 % less peak power for at most 7 % of performance at 1110 of 1410 MHz."""
        curve = power_curve(GPUS.get("A100-80GB-SXM"))
        assert curve.busy_w(1110 / 1410).mid / curve.busy_w().mid == pytest.approx(0.80, abs=0.02)

    @given(BOARDS)
    def test_levels_fall_from_the_full_clock_and_each_saves_power(self, gpu: GpuSpec) -> None:
        curve = power_curve(gpu)
        watts = [curve.busy_w(level).mid for level in curve.levels]
        assert curve.levels[0] == 1.0
        assert 2 <= len(curve.levels) <= 3
        assert watts == sorted(watts, reverse=True)
        assert len(set(watts)) == len(watts)


class TestReplicas:
    @given(BOARDS, st.sampled_from((1, 2, 8)), CLOCKS)
    def test_replica_power_covers_all_gpus_and_their_share_of_the_server(
        self, gpu: GpuSpec, gpus: int, clock: float
    ) -> None:
        one, several = replica_power(gpu, gpus=1, level=clock), replica_power(gpu, gpus=gpus, level=clock)
        assert several.planned_busy_w == pytest.approx(gpus * one.planned_busy_w)
        assert several.limit_w == pytest.approx(gpus * one.limit_w)
        idle_w = gpus * power_curve(gpu).idle_w.mid
        assert idle_w < several.planned_idle_w < several.planned_busy_w < several.limit_w

    def test_a_server_of_eight_a100_lies_between_its_idle_and_its_nameplate(self) -> None:
        """DGX A100: 2.1 kW idle and 5.7 kW at its peak of 408 W per GPU, 6.5 kW on the plate."""
        a100 = GPUS.get("A100-80GB-SXM")
        server = power_curve(a100).server_w
        assert 8 * (63 + server(63).mid) == pytest.approx(2100, rel=0.02)
        assert 8 * (408 + server(408).mid) == pytest.approx(5700, rel=0.02)
        assert 8 * (400 + server(400).high) == pytest.approx(6500, rel=0.02)


def test_spreads_that_do_not_rise_are_refused() -> None:
    written = builtin_shares().model_dump()
    written["clock"]["spread"] = {"low": 1.0, "mid": 0.9, "high": 1.1}
    with pytest.raises(ValueError, match="must rise from low to high"):
        PowerShares.model_validate(written)
