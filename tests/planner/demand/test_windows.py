from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.demand.profiles import PROFILES
from planner.demand.replicas import Window
from planner.demand.series import Series
from planner.demand.windows import DemandWindow, disagreement, read_window
from tests.planner.demand.scraped import Served, scraped

WINDOW = Window(60.0, 120.0)
PARTS = {"H100-SXM": {"pod": "h100-.*"}, "L4": {"pod": "l4-.*"}}


def steady(rps: float, *, until_s: float = 120.0, takes_s: float = 2.0) -> list[Served]:
    return [Served(n / rps, n / rps + takes_s, input_tokens=50 + n % 200) for n in range(int(until_s * rps))]


def window(series: list[Series], **changes: object) -> DemandWindow:
    given_: dict[str, object] = {
        "window": WINDOW,
        "profile": PROFILES["vllm"],
        "parts": {"H100-SXM": {"pod": "h100-.*"}},
        "max_age_s": 15.0,
    }
    return read_window(series, **(given_ | changes))  # type: ignore[arg-type]


class TestDemand:
    def test_a_steady_load_is_read_as_it_is(self) -> None:
        requests = steady(4)
        found = window(scraped(requests, labels={"pod": "h100-0"}, until_s=120))
        ended = [each.input_tokens for each in requests if 60 < each.ended_s <= 120]
        assert found.problems == ()
        assert found.arrivals_rps == pytest.approx(4, rel=0.02)
        assert found.completions_rps == pytest.approx(4, rel=0.02)
        assert found.running == pytest.approx(8, abs=1)
        assert found.input_tokens is not None
        assert found.input_tokens.mean == pytest.approx(sum(ended) / len(ended))
        assert found.tpot_s is not None
        assert found.tpot_s.mean == pytest.approx(0.03)
        assert found.error_rate == 0

    def test_arrivals_are_counted_while_a_queue_grows(self) -> None:
        requests = [Served(n / 10, 60 + n / 2) for n in range(1200)]  # 10 arrive and 2 end each second
        found = window(scraped(requests, labels={"pod": "h100-0"}, until_s=120))
        assert found.completions_rps == pytest.approx(2, rel=0.05)
        assert found.arrivals_rps == pytest.approx(10, rel=0.05)

    @given(rates=st.lists(st.floats(0.5, 10), min_size=1, max_size=5))
    def test_replicas_add_up(self, rates: list[float]) -> None:
        series = [
            each
            for n, rate in enumerate(rates)
            for each in scraped(steady(rate), labels={"pod": f"h100-{n}"}, until_s=120)
        ]
        found = window(series)
        assert found.problems == ()
        assert found.arrivals_rps == pytest.approx(sum(rates), abs=0.06 * len(rates))
        assert found.parts["H100-SXM"].replicas == len(rates)

    @pytest.mark.parametrize("every_s", [5.0, 20.0, 45.0, 60.0])
    def test_the_interval_of_scrapes_does_not_change_the_rate(self, every_s: float) -> None:
        series = scraped(steady(4), labels={"pod": "h100-0"}, until_s=120, since_s=3, every_s=every_s)
        found = window(series, max_age_s=100)
        assert found.problems == ()
        assert found.arrivals_rps == pytest.approx(4, rel=0.1)

    def test_prefill_and_decode_replicas_count_a_request_once(self) -> None:
        prefill = [replace(each, output_tokens=1, ttft_s=0.4) for each in steady(4)]
        series = scraped(prefill, labels={"pod": "p-0"}, until_s=120)
        series += scraped([replace(each, ttft_s=0.1) for each in steady(4)], labels={"pod": "d-0"}, until_s=120)
        found = window(series, parts={"H100-SXM/prefill": {"pod": "p-.*"}, "H100-SXM/decode": {"pod": "d-.*"}})
        assert found.arrivals_rps == pytest.approx(4, rel=0.05)
        assert found.output_tokens is not None
        assert found.output_tokens.mean == pytest.approx(20)
        assert found.ttft_s is not None
        assert found.ttft_s.mean == pytest.approx(0.4)

    def test_the_ranks_of_one_server_are_one_replica(self) -> None:
        series = [
            each
            for rank in range(2)
            for each in scraped(steady(2), labels={"pod": "h100-0", "engine": str(rank)}, until_s=120)
        ]
        found = window(series)
        assert found.arrivals_rps == pytest.approx(4, rel=0.05)
        assert found.parts["H100-SXM"].replicas == 1

    def test_parts_are_read_apart(self) -> None:
        series = scraped(steady(4), labels={"pod": "h100-0"}, until_s=120)
        slow = [replace(each, tpot_s=0.06) for each in steady(1)]
        series += scraped(slow, labels={"pod": "l4-0"}, until_s=120)
        found = window(series, parts=PARTS)
        assert found.parts["H100-SXM"].completions_rps == pytest.approx(4, rel=0.05)
        tpot = found.parts["L4"].tpot_s
        assert tpot is not None
        assert tpot.mean == pytest.approx(0.06)

    @pytest.mark.parametrize("every_s", [5.0, 45.0])
    def test_failures_are_a_share_of_the_requests(self, every_s: float) -> None:
        requests = [replace(each, finished="abort" if n % 4 == 0 else "stop") for n, each in enumerate(steady(4))]
        found = window(scraped(requests, labels={"pod": "h100-0"}, until_s=120, every_s=every_s), max_age_s=100)
        assert found.error_rate == pytest.approx(0.25, abs=0.02)

    def test_a_replica_that_stops_keeps_its_requests_of_the_window(self) -> None:
        stopped = scraped(steady(4, until_s=88), labels={"pod": "h100-0"}, until_s=90)
        series = stopped + scraped(steady(4), labels={"pod": "h100-1"}, until_s=120)
        found = window(series)
        assert found.problems == ()
        assert found.arrivals_rps == pytest.approx(4 + 4 * 28 / 60, rel=0.05)
        assert found.parts["H100-SXM"].replicas == 1

    def test_a_renamed_metric_is_read_under_its_older_name(self) -> None:
        renamed = {
            "vllm:request_time_per_output_token_seconds": "vllm:time_per_output_token_seconds",
        }
        series = [
            replace(each, name=each.name.replace(old, new))
            for each in scraped(steady(4), labels={"pod": "h100-0"}, until_s=120)
            for old, new in renamed.items()
        ]
        assert window(series).tpot_s is not None


class TestProblems:
    def test_a_series_of_no_part_is_an_error(self) -> None:
        series = scraped(steady(4), labels={"pod": "a100-0"}, until_s=120)
        assert 'pod="a100-0"} match no part; allowed: exactly one part' in window(series).problems[0]

    def test_a_series_of_two_parts_is_an_error(self) -> None:
        series = scraped(steady(4), labels={"pod": "h100-0"}, until_s=120)
        found = window(series, parts={"H100-SXM": {"pod": "h100.*"}, "H100-SXM/x2": {"pod": ".*-0"}})
        assert "match H100-SXM and H100-SXM/x2" in found.problems[0]

    def test_no_series_is_missing(self) -> None:
        assert window([]).problems == ("missing: no series of this target",)

    def test_an_old_sample_is_stale(self) -> None:
        series = scraped(steady(4, until_s=60), labels={"pod": "h100-0"}, until_s=70)
        assert window(series).problems == ("stale: the newest sample is 50 s old; allowed: at most 15 s",)

    def test_a_replica_without_samples_is_missing(self) -> None:
        series = scraped(steady(4), labels={"pod": "h100-0"}, until_s=120)
        found = window(series, expected_replicas={"H100-SXM": 2})
        assert found.problems == ("missing: 1 of 2 running replicas of H100-SXM export samples",)

    def test_a_reset_counter_is_reported(self) -> None:
        series = scraped(steady(4), labels={"pod": "h100-0"}, until_s=120, restarted_s=90)
        assert any(problem.startswith("reset: ") for problem in window(series).problems)

    def test_a_server_that_is_read_twice_is_reported(self) -> None:
        series = [
            each
            for job in ("pods", "services")
            for each in scraped(steady(4), labels={"pod": "h100-0", "job": job}, until_s=120)
        ]
        assert any(problem.startswith("repeated: ") for problem in window(series).problems)

    def test_equal_counts_of_two_replicas_are_no_repetition(self) -> None:
        series = [each for n in range(2) for each in scraped(steady(4), labels={"pod": f"h100-{n}"}, until_s=120)]
        assert window(series).problems == ()

    def test_a_server_that_two_prometheus_scrape_at_other_times_is_reported(self) -> None:
        series = [
            each
            for replica, since_s in (("p0", 0.0), ("p1", 2.5))
            for each in scraped(
                steady(4), labels={"pod": "h100-0", "prometheus_replica": replica}, until_s=120, since_s=since_s
            )
        ]
        assert any(problem.startswith("repeated: ") for problem in window(series).problems)

    def test_samples_that_begin_in_the_window_are_not_usable(self) -> None:
        series = scraped(steady(4), labels={"pod": "h100-0"}, until_s=120, since_s=105)
        assert window(series).problems == ("missing: the samples begin 45 s after the start of the window",)

    def test_scrapes_as_rare_as_windows_are_not_usable_where_none_is_inside(self) -> None:
        series = scraped(steady(4), labels={"pod": "h100-0"}, until_s=120, since_s=20, every_s=200)
        found = window(series, max_age_s=100)
        assert found.problems[0].startswith("missing: the scrapes of 1 servers")

    def test_counts_that_contradict_each_other_are_reported(self) -> None:
        series = [
            replace(each, samples=tuple((at_s, value / 2) for at_s, value in each.samples))
            if each.name.startswith("vllm:request_prompt_tokens")
            else each
            for each in scraped(steady(4), labels={"pod": "h100-0"}, until_s=120)
        ]
        assert any(problem.startswith("contradictory: ") for problem in window(series).problems)

    def test_a_metric_that_no_server_exports_is_missing(self) -> None:
        series = [
            each
            for each in scraped(steady(4), labels={"pod": "h100-0"}, until_s=120)
            if not each.name.startswith("vllm:request_prompt_tokens")
        ]
        (problem,) = window(series).problems
        assert problem.startswith("missing: no series vllm:request_prompt_tokens_bucket or ray_vllm:")

    def test_two_sources_that_disagree(self) -> None:
        few, many = (window(scraped(steady(rps), labels={"pod": "h100-0"}, until_s=120)) for rps in (4, 8))
        assert disagreement([few, few], tolerance=0.15) is None
        found = disagreement([few, many], tolerance=0.15)
        assert found is not None
        assert found.startswith("source 1 counts 3.98 requests/s and source 2 7.98")
