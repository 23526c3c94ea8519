"""Changes of a trace, and its replay in scaled time."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deploy.common.clock import Clock
from deploy.emulator.openai_protocol import parse_request
from deploy.emulator.trace_player import Change, TracePlayer, between, changed, main, read_trace_file
from fleet.traces import Trace
from tests.testbed.asgi import serving

CSV = "time,input_tokens,output_tokens\n0,10,1\n0.5,20,2\n2,3000,3\n"


def trace_of(arrival_s: list[float], prompts: list[int] | None = None) -> Trace:
    prompts = prompts or [10] * len(arrival_s)
    return Trace(np.array(arrival_s), np.array(prompts), np.full(len(arrival_s), 5))


def test_the_rate_doubles_and_prompts_triple_from_a_time_on() -> None:
    found = changed(trace_of([0.0, 10.0, 20.0, 30.0]), Change(10.0, rate=2.0, prompt=3.0))
    assert found.arrival_s.tolist() == [0, 10, 15, 20]
    assert found.input_tokens.tolist() == [10, 30, 30, 30]
    assert found.output_tokens.tolist() == [5, 5, 5, 5]


@given(
    arrival_s=st.lists(st.floats(0, 1e4), min_size=1, max_size=30).map(sorted),
    from_s=st.floats(0, 1e4),
    rate=st.floats(0.1, 10),
    prompt=st.floats(0.1, 10),
)
def test_a_change_keeps_the_order_and_all_requests_before_it(
    arrival_s: list[float], from_s: float, rate: float, prompt: float
) -> None:
    trace = trace_of(arrival_s)
    found = changed(trace, Change(from_s, rate=rate, prompt=prompt))
    assert len(found) == len(trace)
    assert (np.diff(found.arrival_s) >= 0).all()
    before = trace.arrival_s < from_s
    assert (found.arrival_s[before] == trace.arrival_s[before]).all()
    assert (found.input_tokens >= 1).all()


def test_a_period_starts_at_time_zero() -> None:
    found = between(trace_of([0.0, 10.0, 20.0, 30.0], [1, 2, 3, 4]), 10.0, 30.0)
    assert (found.arrival_s.tolist(), found.input_tokens.tolist()) == ([0, 10], [2, 3])


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(CSV.encode()))
    assert read_trace_file(path).input_tokens.tolist() == [10, 20, 3000]


@dataclass
class Time:
    """A clock that advances by its sleeps only."""

    at_s: float = 50.0

    def now_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds


@pytest.mark.anyio
async def test_requests_have_the_sizes_of_the_trace_and_are_sent_at_its_scaled_times(tmp_path: Path) -> None:
    time, seen = Time(), list[tuple[int, int]]()
    (tmp_path / "trace.csv").write_text(CSV)

    async def answer(request: Request) -> Response:
        found = parse_request(request.url.path, await request.body())
        seen.append((found.prompt_tokens, found.output_tokens))
        if found.output_tokens == 3:
            return Response("no replica", status_code=503)
        return JSONResponse({"emulator": {"ttft_s": 0.1, "e2e_s": 0.4}})

    with serving(Starlette(routes=[Route("/v1/completions", answer, methods=["POST"])])) as url:
        player = TracePlayer(
            trace=read_trace_file(tmp_path / "trace.csv"),
            url=url,
            time_scale=4.0,
            clock=Clock(steady_s=time.now_s, sleep=time.sleep),
        )
        report = await player.play()
    assert sorted(seen) == [(10, 1), (20, 2), (3000, 3)]
    assert time.at_s == 50.5
    assert (report.sent, report.finished, report.failed, report.failures) == (3, 2, 1, {"503": 1})
    assert (report.first_failure, report.max_lag_s, report.ttft_s) == ("no replica", 0, (0.1, 0.1))


@pytest.mark.parametrize("change", ["1:2", "a:1:1", "0:0:1", "-1:1:1"])
def test_an_invalid_change_is_refused(change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(CSV)
    with pytest.raises(SystemExit):
        main([str(path), "--url", "http://127.0.0.1:1", "--change", change])
    assert "--change" in capsys.readouterr().err
