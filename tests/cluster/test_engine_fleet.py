"""A real Prometheus measures what a trace player sent to a fleet of emulated engines, while replicas come and go."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from deploy.emulator.trace_player import PlayReport, TracePlayer, between, read_trace_file
from fleet.traces import Trace
from tests.testbed.engine_fleet import EngineFleet, scraped_fleet
from tests.testbed.prometheus import Prometheus
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.prometheus

SCALE = 10.0
H100 = {"gpu": "H100-SXM", "replicas": 2, "warm_up_s": 5.0}
SPEC = {"time_scale": SCALE, "options": {"h100": H100, "l4": {"gpu": "L4", "engine": "sglang", "replicas": 1}}}
SHARED = Path(__file__).parents[3] / "shared" / "data"
TRACES = {
    "azure": SHARED / "power" / "AzureLLMInferenceTrace_conv_2023.csv.gz",
    "mooncake": SHARED / "serving" / "traces" / "mooncake_conversation.jsonl.gz",
}


@dataclass(frozen=True, kw_only=True)
class Bench:
    fleet: EngineFleet
    prometheus: Prometheus

    def value(self, expression: str) -> float:
        """The only sample of an instant query; 0 where there is none."""
        found = self.prometheus.query(expression)
        return found[0].value if found else 0.0

    def wait_for(self, expression: str, expected: float) -> None:
        wait_for(lambda: self.value(expression), lambda found: found == expected, what=f"{expected:g}: {expression}")

    @contextmanager
    def playing(self, trace: Trace) -> Iterator["Future[PlayReport]"]:
        player = TracePlayer(trace=trace, url=self.fleet.url, time_scale=SCALE)
        with ThreadPoolExecutor(max_workers=1) as threads:
            yield threads.submit(lambda: asyncio.run(player.play()))


@pytest.fixture
def bench(prometheus_programs: Path, tmp_path: Path) -> Iterator[Bench]:
    with scraped_fleet(SPEC, prometheus_programs, directory=tmp_path) as (fleet, prometheus):
        yield Bench(fleet=fleet, prometheus=prometheus)


def steady(*, rate_rps: float, seconds: float, prompt: int, output: int) -> Trace:
    """Requests at equal intervals, in seconds of the model."""
    count = round(rate_rps * seconds)
    arrival_s = np.arange(count) / rate_rps
    return Trace(arrival_s, np.full(count, prompt), np.full(count, output))


def test_rates_are_those_that_were_sent_times_the_time_scale(bench: Bench) -> None:
    trace = steady(rate_rps=4.0, seconds=100.0, prompt=500, output=40)
    with bench.playing(trace) as done:
        wait_for(lambda: bench.fleet.counts.requests.finished, lambda count: count > 280, what="7 s of requests")
        started = "time_to_first_token_seconds_count[5s]"
        rate_rps = bench.value(f"sum(rate(vllm:{started})) + sum(rate(sglang:{started}))")
        prompt = bench.value(f"sum(rate(vllm:prompt_tokens_total[5s])) / sum(rate(vllm:{started}))")
        report = done.result()
    assert rate_rps == pytest.approx(4.0 * SCALE, rel=0.1)
    assert prompt == pytest.approx(500, rel=1e-6)
    assert (report.finished, report.failed) == (len(trace), 0)
    bench.wait_for("sum(vllm:request_success_total) + sum(sglang:num_requests_total)", len(trace))
    e2e_s = "e2e_request_latency_seconds_sum"
    seconds = bench.value(f"sum(vllm:{e2e_s}) + sum(sglang:{e2e_s})")
    assert seconds == pytest.approx(sum(report.e2e_s), rel=1e-4)  # model seconds at any time scale


def test_counters_of_a_restarted_replica_start_at_zero(bench: Bench) -> None:
    with bench.playing(steady(rate_rps=4.0, seconds=20.0, prompt=100, output=10)) as done:
        done.result()
    counter = 'vllm:prompt_tokens_total{pod="h100-0"}'
    before = wait_for(lambda: bench.value(counter), lambda tokens: tokens > 0, what="counted tokens")
    bench.fleet.restart("h100-0")
    bench.fleet.wait_settled("h100", 2)
    bench.wait_for(f"resets({counter}[1m])", 1)
    assert bench.value(counter) == 0
    assert bench.value(f"increase({counter}[1m])") == pytest.approx(before, rel=0.2)


def test_no_request_is_dropped_while_replicas_come_and_go(bench: Bench) -> None:
    serving = 'count(vllm:prompt_tokens_total{option="h100"} > 0)'
    with bench.playing(steady(rate_rps=6.0, seconds=120.0, prompt=400, output=150)) as done:
        for replicas in (4, 1, 2):
            bench.fleet.scale("h100", replicas)
            bench.fleet.wait_settled("h100", replicas)
            bench.wait_for(serving, replicas)
        assert not done.done()
        report = done.result()
    counts = bench.fleet.counts.requests
    assert (report.failed, counts.dropped, counts.withdrawn) == (0, 0, 0)
    assert report.finished == counts.finished == report.sent


@pytest.mark.parametrize("name", TRACES)
def test_a_published_trace_is_kept_up_at_ten_times_real_time(
    name: str, prometheus_programs: Path, tmp_path: Path
) -> None:
    if not TRACES[name].is_file():
        pytest.skip(f"{TRACES[name].name} is absent")
    trace = between(read_trace_file(TRACES[name]), 0.0, 120.0)
    spec = {"time_scale": SCALE, "options": {"h100": H100 | {"replicas": 20}}}
    with scraped_fleet(spec, prometheus_programs, directory=tmp_path, interval="1s") as (fleet, prometheus):
        bench = Bench(fleet=fleet, prometheus=prometheus)
        with bench.playing(trace) as done:
            report = done.result()
        bench.wait_for("sum(vllm:request_prompt_tokens_count)", len(trace))
        tokens = bench.value("sum(vllm:request_prompt_tokens_sum)")
    assert (report.sent, report.failed) == (len(trace), 0)
    assert report.max_lag_s < 1.0  # 10 s of the trace
    assert tokens / len(trace) == pytest.approx(trace.input_tokens.mean())
