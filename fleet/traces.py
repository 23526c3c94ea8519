"""Request traces: arrival time and size of each request, from published or logged files of CSV or JSON lines.

The header, or the first object's fields, identify the format; names compare without case.  Others are ignored.

| form | columns | time |
|---|---|---|
| Azure LLM inference trace (Splitwise, ISCA'24) | TIMESTAMP, ContextTokens, GeneratedTokens | ISO 8601 |
| BurstGPT (arXiv 2401.17644) | Timestamp, Request tokens, Response tokens | seconds |
| Mooncake (FAST'25) | timestamp or timestamp_ms, input_length, output_length | milliseconds |
| plain | time or time_s or arrival_s, input_tokens, output_tokens | seconds, or ISO 8601 |

BurstGPT marks a failed request by 0 response tokens; the reader leaves out and counts such rows.  In all other formats
a request has at least one output token.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.csv_columns import CsvTable, Floats, names_of
from fleet.demand import MAX_DURATION_S, MAX_PERIODS, DemandSeries
from fleet.documents import RuleError
from fleet.errors import DocumentError, Problem

MAX_TOKENS = 100_000_000  # as the edges of a histogram
MAX_REQUESTS = 10_000_000

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Form:
    name: str
    times: tuple[str, ...]
    inputs: str
    outputs: str
    seconds_per_unit: float = 1.0
    failures_have_no_output: bool = False


FORMS = (
    Form("Azure", ("timestamp",), "contexttokens", "generatedtokens"),
    Form("BurstGPT", ("timestamp",), "request tokens", "response tokens", failures_have_no_output=True),
    Form("Mooncake", ("timestamp_ms", "timestamp"), "input_length", "output_length", seconds_per_unit=1e-3),
    Form("plain", ("arrival_s", "time_s", "time"), "input_tokens", "output_tokens"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in the order of arrival; times count from the first one."""

    arrival_s: Floats
    input_tokens: Integers
    output_tokens: Integers
    start: datetime | None = None  # of the first request; None where the file has no dates
    failed: int = 0  # rows left out because the request failed

    def __post_init__(self) -> None:
        for values in (self.arrival_s, self.input_tokens, self.output_tokens):
            values.flags.writeable = False

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def duration_s(self) -> float:
        """From the first arrival to one mean gap after the last, so that requests / duration is the mean rate."""
        between_s = float(self.arrival_s[-1])
        return between_s * len(self) / max(len(self) - 1, 1)

    def demand(self, step_s: float = 300.0) -> DemandSeries:
        """Arrivals per step.  A trace shorter than a step is one step of its own length.

        The end of the trace may cut the last step short, and its rate is then too low in proportion; the others and the
        peak are exact.
        """
        RuleError.raise_for(self._violations(step_s))
        step_s = min(step_s, self.duration_s)
        steps = max(1, int(np.floor(self.arrival_s[-1] / step_s)) + 1)
        arrived = np.bincount((self.arrival_s / step_s).astype(np.int64).clip(max=steps - 1), minlength=steps)
        return DemandSeries(start=self.start, step_s=step_s, rates_rps=tuple(map(float, arrived / step_s)))

    def _violations(self, step_s: float) -> Iterator[tuple[tuple[str | int, ...], str]]:
        if not 0 < step_s <= MAX_DURATION_S:
            yield ("step_s",), f"{step_s:g} is out of range, expected above 0 and at most {MAX_DURATION_S:g}"
        elif self.duration_s <= 0:
            yield (), "all requests arrive at once, so they have no rate; expected at least two different times"
        elif self.arrival_s[-1] / step_s >= MAX_PERIODS:
            min_step_s = self.arrival_s[-1] / MAX_PERIODS
            yield ("step_s",), f"cuts the trace into more than {MAX_PERIODS:,} steps, expected more than {min_step_s:g}"


def read_trace(text: str, *, name: str) -> Trace:
    """The trace in a text.  `name` is the file's name in errors; these name line, column and allowed values."""
    if text.lstrip("\ufeff\r\n ").startswith("{"):
        table = _json_lines(text, name)
    else:
        table = CsvTable.read(text, name=name, max_rows=MAX_REQUESTS)
    form = _form_of(table.header, name)
    time, *sizes = (table.header.index(each) for each in (_time_column(form, table.header), form.inputs, form.outputs))
    if not 1 <= len(table.lines) <= MAX_REQUESTS:
        count = f"more than {MAX_REQUESTS:,}" if table.lines else "no"
        raise DocumentError(name=name, problems=[Problem("", f"has {count} requests, expected 1 to {MAX_REQUESTS:,}")])
    table.require_cells([time, *sizes])
    times, start = table.times(time, unit="a number")
    if start is None:
        times = times * form.seconds_per_unit
    inputs = _tokens(table, sizes[0], minimum=0)
    outputs = _tokens(table, sizes[1], minimum=0 if form.failures_have_no_output else 1)
    if not outputs.any():
        raise DocumentError(name=name, problems=[Problem(form.outputs, "is 0 throughout: every request failed")])
    return _trace(times, inputs, outputs, start=None if start is None else start.astimezone(UTC))


def _json_lines(text: str, name: str) -> CsvTable:
    """The objects as a table with the fields of the first one."""
    objects = list(islice(_objects(text, name), MAX_REQUESTS + 1))
    fields = list(objects[0][1])
    rows = [(number, [str(found.get(field, "")) for field in fields]) for number, found in objects]
    return CsvTable(name, names_of(fields), rows)


def _objects(text: str, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise DocumentError(name=name, problems=[Problem("", "expected a JSON object", number)])
        yield number, found


def _tokens(table: CsvTable, column: int, *, minimum: int) -> Integers:
    def fits(numbers: Floats) -> npt.NDArray[np.bool_]:
        whole: npt.NDArray[np.bool_] = numbers == np.floor(numbers)
        return whole & (numbers >= minimum) & (numbers <= MAX_TOKENS)

    expected = f"a whole number from {minimum} to {MAX_TOKENS:,}"
    return table.numbers(column, fits, expected=expected).astype(np.int64)


def _trace(times_s: Floats, inputs: Integers, outputs: Integers, *, start: datetime | None) -> Trace:
    served = outputs > 0
    times_s, inputs, outputs = times_s[served], inputs[served], outputs[served]
    order = np.argsort(times_s, kind="stable")
    first_s = float(times_s.min())
    return Trace(
        arrival_s=times_s[order] - first_s,
        input_tokens=inputs[order],
        output_tokens=outputs[order],
        start=None if start is None else start + timedelta(seconds=first_s),
        failed=int(np.count_nonzero(~served)),
    )


def _form_of(header: Sequence[str], name: str) -> Form:
    for form in FORMS:
        if form.inputs in header and form.outputs in header and set(form.times) & set(header):
            return form
    known = "; ".join(f"{form.times[0]},{form.inputs},{form.outputs} ({form.name})" for form in FORMS)
    shown = ",".join(header)[:200]
    raise DocumentError(name=name, problems=[Problem("", f"unknown header {shown!r}, expected the columns {known}", 1)])


def _time_column(form: Form, header: Sequence[str]) -> str:
    return next(column for column in form.times if column in header)
