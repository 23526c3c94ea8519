"""Demand from a log with one JSON object per request.  Only times, counts of tokens and the error are kept.

An access log has `time` (arrival, RFC 3339 or Unix seconds), `input_tokens`, `output_tokens`, and optionally `ttft_s`,
`duration_s` and `status` (HTTP).  OpenTelemetry spans have the attributes of the conventions for generative AI, in
OTLP's JSON (`resourceSpans`) or one span per line.

A line appears when its request has ended.  So the arrivals of a window are those of the lines that are there, and at
least the requests that ended in the window.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from planner.demand.density import Density, exact_density
from planner.demand.replicas import ENTIRE, Window
from planner.demand.windows import DemandWindow, PartTraffic

LogFormat = Literal["access", "opentelemetry"]
MALFORMED = 0.01  # share of lines of the log beyond which the window is not usable
LATE_START = 0.1  # of the window: an older part of the log was moved away, or the log is new
CLIENT_ERROR, SERVER_ERROR = 400, 500
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
FIRST_TOKEN = ("gen_ai.server.time_to_first_token", "gen_ai.client.time_to_first_token", "gen_ai.response.ttft")
NS_PER_S = 1e9
TEXT_FIELDS = ("prompt", "completion", "message", "content", "instruction", "tool", "body", "text", "query")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    arrived_s: float
    duration_s: float
    input_tokens: float | None  # None: it failed before it had any
    output_tokens: float | None
    ttft_s: float | None
    failed: bool
    fields: Mapping[str, str]  # what a selector may name

    @property
    def ended_s(self) -> float:
        return self.arrived_s + self.duration_s


class MalformedLineError(ValueError):
    """The line is no request of this format."""


def read_log(
    lines: Iterable[str], *, log_format: LogFormat, selector: Mapping[str, str], window: Window, max_age_s: float
) -> DemandWindow:
    patterns = {name: re.compile(pattern) for name, pattern in selector.items()}
    found: list[LoggedRequest] = []
    read = malformed = 0
    for line in lines:
        if not line.strip():
            continue
        read += 1
        try:
            requests = list(parse_line(line, log_format=log_format))
        except MalformedLineError:
            malformed += 1
            continue
        found += [each for each in requests if _matches(each, patterns)]
    problems = []
    if malformed > MALFORMED * read:
        problems.append(f"contradictory: {malformed} of {read} lines are no requests in the format {log_format}")
    newest_s = max((each.ended_s for each in found), default=float("-inf"))
    if not found:
        problems.append("missing: no line of this target")
    elif min(each.arrived_s for each in found) > window.start_s + LATE_START * window.length_s:
        problems.append("missing: the log begins after the start of the window")
    elif window.end_s - newest_s > max_age_s:
        problems.append(f"stale: the newest line is {window.end_s - newest_s:.0f} s old; allowed: {max_age_s:g} s")
    return _window(found, window, tuple(problems))


def parse_line(line: str, *, log_format: LogFormat) -> Iterator[LoggedRequest]:
    """The requests of one line.  MalformedLineError where it has none of this format."""
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise MalformedLineError("not an object")
        if log_format == "access":
            yield _of_access(document)
        else:
            yield from _of_spans(document)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise MalformedLineError(str(error)) from error


def _of_access(document: Mapping[str, Any]) -> LoggedRequest:
    status = int(document.get("status", 200))
    return LoggedRequest(
        arrived_s=_time_s(document["time"]),
        duration_s=_positive(document.get("duration_s", 0.0)),
        input_tokens=_tokens(document, "input_tokens", failed=status >= CLIENT_ERROR),
        output_tokens=_tokens(document, "output_tokens", failed=status >= CLIENT_ERROR),
        ttft_s=_optional(document.get("ttft_s")),
        failed=status >= SERVER_ERROR,
        fields=_selectable(document),
    )


def _of_spans(document: Mapping[str, Any]) -> Iterator[LoggedRequest]:
    if "resourceSpans" not in document:
        spans = [document]
    else:
        spans = [
            span
            for resource in document["resourceSpans"]
            for scope in resource.get("scopeSpans", ())
            for span in scope.get("spans", ())
        ]
    for span in spans:
        attributes = _attributes(span.get("attributes", {}))
        if INPUT not in attributes:
            continue  # a span of something else, such as a tool
        start_s, end_s = (_span_time_s(span, side) for side in ("start", "end"))
        first = next((attributes[name] for name in FIRST_TOKEN if name in attributes), None)
        yield LoggedRequest(
            arrived_s=start_s,
            duration_s=_positive(end_s - start_s),
            input_tokens=_positive(attributes[INPUT]),
            output_tokens=_positive(attributes.get(OUTPUT, 0)),
            ttft_s=_optional(first),
            failed="error.type" in attributes,
            fields=_selectable(attributes),
        )


def _selectable(document: Mapping[str, Any]) -> dict[str, str]:
    """The fields that a selector may name.  Those that may hold text of a prompt or an answer are not kept."""
    return {
        name: str(value)
        for name, value in document.items()
        if isinstance(value, str | int) and not any(part in name for part in TEXT_FIELDS)
    }


def _attributes(given: Any) -> dict[str, Any]:
    """A mapping, or OTLP's list of keys and typed values."""
    if isinstance(given, dict):
        return given
    return {each["key"]: next(iter(each["value"].values())) for each in given if each.get("value")}


def _span_time_s(span: Mapping[str, Any], side: str) -> float:
    if (nanoseconds := span.get(f"{side}TimeUnixNano")) is not None:
        return float(nanoseconds) / NS_PER_S
    return _time_s(span[f"{side}_time"])


def _time_s(value: Any) -> float:
    if isinstance(value, str):
        return datetime.fromisoformat(value).timestamp()
    return _positive(value)


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 1e12:
        raise MalformedLineError(f"{number:g} is out of range, expected 0 to 1e12")
    return number


def _tokens(document: Mapping[str, Any], name: str, *, failed: bool) -> float | None:
    return None if failed and document.get(name) is None else _positive(document[name])


def _optional(value: Any) -> float | None:
    return None if value is None else _positive(value)


def _matches(request: LoggedRequest, patterns: Mapping[str, re.Pattern[str]]) -> bool:
    return all(pattern.fullmatch(request.fields.get(name, "")) for name, pattern in patterns.items())


def _window(found: list[LoggedRequest], window: Window, problems: tuple[str, ...]) -> DemandWindow:
    arrived = [each for each in found if window.start_s < each.arrived_s <= window.end_s]
    ended = [each for each in found if window.start_s < each.ended_s <= window.end_s]
    ttft = [each.ttft_s for each in ended if each.ttft_s]
    tpot = [
        (each.duration_s - each.ttft_s) / (each.output_tokens - 1)
        for each in ended
        if each.ttft_s and each.output_tokens and each.output_tokens > 1 and each.duration_s > each.ttft_s
    ]
    completions_rps = len(ended) / window.length_s
    return DemandWindow(
        window=window,
        arrivals_rps=max(len(arrived), len(ended)) / window.length_s,
        completions_rps=completions_rps,
        requests=float(len(ended)),
        input_tokens=_density([each.input_tokens for each in ended if each.input_tokens is not None]),
        output_tokens=_density([each.output_tokens for each in ended if each.output_tokens is not None]),
        ttft_s=_density(ttft),
        tpot_s=_density(tpot),
        error_rate=sum(each.failed for each in ended) / len(ended) if ended else None,
        parts={ENTIRE: PartTraffic(replicas=0, completions_rps=completions_rps)},
        problems=problems,
    )


def _density(values: list[float]) -> Density | None:
    return exact_density(values) if values else None
