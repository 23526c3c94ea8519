"""The forms of `buckets` in a request: a histogram, a named preset, or a trace.

    buckets: {input_tokens: [500, 2000], output_tokens: [250], share: [[0.6], [0.4]]}
    buckets: {preset: azure-conversation}                       # edges are optional: input_tokens, output_tokens
    buckets: {trace_csv: "time,input_tokens,output_tokens\\n0,374,44\\n..."}
    buckets: {trace_file: requests.csv}                         # the command line replaces it by the file's text

Each form resolves to a histogram.  A trace also has arrival times, so it provides a demand series and the requests of
a replay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from fleet.demand import MAX_DURATION_S, DemandSeries
from fleet.documents import Frozen, RuleError, validate_nested
from fleet.errors import DocumentError, UnknownNameError
from fleet.sizes.histogram import Edges, SizeBuckets, falling_edges
from fleet.sizes.presets import SizePreset, SizePresets, builtin_size_presets
from fleet.traces import Trace, read_trace

MAX_TRACE_CHARACTERS = 64_000_000  # 1.5 million requests


class PresetSizes(Frozen):
    """A named distribution; without edges, on its own."""

    preset: Annotated[str, Field(min_length=1, max_length=200)]
    input_tokens: Edges | None = None
    output_tokens: Edges | None = None

    @model_validator(mode="after")
    def _edges_rise(self) -> Self:
        for field, edges in (("input_tokens", self.input_tokens), ("output_tokens", self.output_tokens)):
            RuleError.raise_for(falling_edges(edges or (), field=field))
        return self


class TraceSizes(Frozen):
    """A trace as CSV text; edges that are not given overstate its tokens the least."""

    trace_csv: Annotated[str, Field(min_length=1, max_length=MAX_TRACE_CHARACTERS)]
    step_s: Annotated[float, Field(gt=0, le=MAX_DURATION_S)] = Field(
        default=300.0, description="Length of a step of the demand series."
    )
    input_tokens: Edges | None = None
    output_tokens: Edges | None = None


def _of_its_kind(value: Any, _choices: ValidatorFunctionWrapHandler, info: ValidationInfo) -> BaseModel:
    """Read a mapping as the form that its fields name, so that errors concern this form and not every one."""
    if isinstance(value, SizeBuckets | PresetSizes | TraceSizes):
        return value
    fields = value if isinstance(value, Mapping) else {}
    if "trace_file" in fields:
        given = "is read by the command line only, relative to the request; send the file's text as trace_csv"
        raise RuleError([(("trace_file",), given)])
    if "preset" in fields:
        return validate_nested(PresetSizes, value, info)
    return validate_nested(TraceSizes if "trace_csv" in fields else SizeBuckets, value, info)


SizeSource = Annotated[SizeBuckets | PresetSizes | TraceSizes, WrapValidator(_of_its_kind)]


@dataclass(frozen=True)
class Sizes:
    source: SizeBuckets | SizePreset
    input_tokens: Edges
    output_tokens: Edges
    note: str  # the origin of the sizes
    trace: Trace | None = None
    demand: DemandSeries | None = None  # of the trace; also None where all its requests arrive at once

    @cached_property
    def buckets(self) -> SizeBuckets:
        """The histogram.  That of a preset is integrated here, and not when a request is validated: it takes long."""
        if isinstance(self.source, SizeBuckets):
            return self.source
        return self.source.buckets(self.input_tokens, self.output_tokens)

    @property
    def cells(self) -> int:
        return len(self.input_tokens) * len(self.output_tokens)


def resolve(source: SizeBuckets | PresetSizes | TraceSizes, *, presets: SizePresets | None = None) -> Sizes:
    """The histogram, demand and trace of a source.  RuleError has the violations, with their field in the source."""
    if isinstance(source, SizeBuckets):
        return Sizes(source, source.input_tokens, source.output_tokens, note="given as a histogram")
    return _of_preset(source, presets) if isinstance(source, PresetSizes) else _of_trace(source)


def _of_preset(source: PresetSizes, presets: SizePresets | None) -> Sizes:
    try:
        entry = (presets or builtin_size_presets()).get(source.preset)
    except UnknownNameError as error:
        raise RuleError([(("preset",), str(error))]) from error
    note = f"preset {entry.name}: {entry.source}, {entry.requests:,} requests, fitted on {entry.date}"
    inputs, outputs = source.input_tokens or entry.input_edges, source.output_tokens or entry.output_edges
    return Sizes(entry, inputs, outputs, note=note)


def _of_trace(source: TraceSizes) -> Sizes:
    try:
        trace = read_trace(source.trace_csv, name="trace_csv")
    except DocumentError as error:
        raise RuleError((("trace_csv",), str(problem)) for problem in error.problems) from error
    buckets = SizeBuckets.from_trace(trace, input_edges=source.input_tokens, output_edges=source.output_tokens)
    failed = f", {trace.failed:,} failed ones left out" if trace.failed else ""
    note = f"a trace of {len(trace):,} requests in {trace.duration_s:,.0f} s{failed}"
    demand = _demand(trace, source.step_s)
    return Sizes(buckets, buckets.input_tokens, buckets.output_tokens, note=note, trace=trace, demand=demand)


def _demand(trace: Trace, step_s: float) -> DemandSeries | None:
    if trace.duration_s <= 0:
        return None
    try:
        return trace.demand(step_s)
    except RuleError as error:
        raise RuleError([(("step_s",), message) for _, message in error.violations]) from error
