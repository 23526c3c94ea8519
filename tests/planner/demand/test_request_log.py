import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.demand.replicas import Window
from planner.demand.request_log import LogFormat, MalformedLineError, parse_line, read_log
from planner.demand.windows import DemandWindow

WINDOW = Window(1_000.0, 1_060.0)


def line(time: float, **more: Any) -> str:
    return json.dumps({"time": time, "input_tokens": 300, "output_tokens": 101, **more})


def span(start_s: float, **attributes: Any) -> dict[str, Any]:
    """A span as OTLP's JSON has it."""
    attributes = {"gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 100} | attributes
    return {
        "startTimeUnixNano": str(int(start_s * 1e9)),
        "endTimeUnixNano": str(int((start_s + 2) * 1e9)),
        "attributes": [
            {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
            for key, value in attributes.items()
        ],
    }


def read(lines: list[str], *, log_format: LogFormat = "access", **selector: str) -> DemandWindow:
    return read_log(lines, log_format=log_format, selector=selector, window=WINDOW, max_age_s=30)


class TestAccessLog:
    def test_rates_sizes_latencies_and_errors_are_exact(self) -> None:
        lines = [line(1_000.5 + n, duration_s=1.2, ttft_s=0.2, status=500 if n % 4 == 0 else 200) for n in range(58)]
        found = read(lines)
        assert found.problems == ()
        assert found.arrivals_rps == pytest.approx(58 / 60)
        assert found.input_tokens is not None
        assert found.input_tokens.quantile(0.5) == pytest.approx(300)
        assert found.tpot_s is not None
        assert found.tpot_s.mean == pytest.approx(0.01)
        assert found.error_rate == pytest.approx(15 / 58)

    def test_a_time_may_be_rfc_3339(self) -> None:
        text = json.dumps({"time": "1970-01-01T00:16:41Z", "input_tokens": 1, "output_tokens": 1})
        (request,) = parse_line(text, log_format="access")
        assert request.arrived_s == 1_001

    def test_a_log_that_was_moved_away_in_the_window_is_not_usable(self) -> None:
        assert read([line(1_030 + n) for n in range(25)]).problems == (
            "missing: the log begins after the start of the window",
        )

    def test_a_refused_request_without_tokens_is_a_request(self) -> None:
        lines = [line(1_001 + n) for n in range(50)]
        lines += [json.dumps({"time": 1_052.0, "status": 429})]
        found = read(lines)
        assert found.problems == ()
        assert found.requests == 51

    def test_lines_of_other_targets_are_not_read(self) -> None:
        lines = [line(1_010 + n, model="a" if n % 2 else "b") for n in range(50)]
        assert read(lines, model="a").requests == 25

    def test_an_old_log_is_stale(self) -> None:
        assert read([line(1_001)]).problems == ("stale: the newest line is 59 s old; allowed: 30 s",)

    def test_a_log_of_something_else_is_not_usable(self) -> None:
        lines = [line(1_001), line(1_055), "GET / 200", "null", "[]", json.dumps({"time": 1})]
        assert read(lines).problems == ("contradictory: 4 of 6 lines are no requests in the format access",)

    @given(st.text(max_size=200))
    def test_any_line_is_a_request_or_malformed(self, text: str) -> None:
        for log_format in ("access", "opentelemetry"):
            try:
                list(parse_line(text, log_format=log_format))
            except MalformedLineError:
                continue


class TestSpans:
    def test_an_export_of_several_spans_is_read(self) -> None:
        spans = [span(1_001.0 + n) for n in range(50)] + [{"attributes": []}]  # and one of something else
        export = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
        found = read([export], log_format="opentelemetry")
        assert found.problems == ()
        assert found.requests == 50
        assert found.output_tokens is not None
        assert found.output_tokens.mean == pytest.approx(100)

    def test_a_span_with_plain_attributes_is_read(self) -> None:
        plain = {
            "start_time": "1970-01-01T00:17:00+00:00",
            "end_time": "1970-01-01T00:17:10+00:00",
            "attributes": {
                "gen_ai.usage.input_tokens": 5,
                "gen_ai.usage.output_tokens": 11,
                "gen_ai.server.time_to_first_token": 5.0,
                "gen_ai.prompt": "must not be kept",
                "error.type": "timeout",
            },
        }
        (request,) = parse_line(json.dumps(plain), log_format="opentelemetry")
        assert (request.arrived_s, request.duration_s, request.ttft_s, request.failed) == (1_020.0, 10.0, 5.0, True)

    def test_no_text_of_a_prompt_is_kept(self) -> None:
        given_ = span(
            1_001.0, **{"gen_ai.prompt": "secret", "gen_ai.request.model": "m", "gen_ai.input.messages": "secret"}
        )
        (request,) = parse_line(json.dumps(given_), log_format="opentelemetry")
        assert "secret" not in repr(request)
        assert request.fields["gen_ai.request.model"] == "m"
