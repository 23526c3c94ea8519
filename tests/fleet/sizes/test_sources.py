"""The three forms of request sizes, and the histogram that each resolves to."""

import pickle
from typing import Any

import pytest
from pydantic import TypeAdapter

from fleet.documents import Frozen, RuleError, parse_document, read_model, write_model
from fleet.errors import DocumentError
from fleet.sizes.histogram import SizeBuckets
from fleet.sizes.presets import preset
from fleet.sizes.sources import PresetSizes, SizeSource, TraceSizes, resolve

TRACE = "time,input_tokens,output_tokens\n0,100,10\n600,900,50\n900,5000,50\n"


class Request(Frozen):
    buckets: SizeSource


def read(text: str) -> Request:
    return read_model(parse_document(text, name="request.yaml"), Request)


class TestReading:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("buckets: {input_tokens: [5], output_tokens: [5], share: [[1.0]]}", SizeBuckets),
            ("buckets: {preset: azure-code}", PresetSizes),
            ("buckets: {preset: azure-code, input_tokens: [1000, 8000]}", PresetSizes),
            ('buckets: {trace_csv: "time,input_tokens,output_tokens\\n0,1,1\\n"}', TraceSizes),
        ],
    )
    def test_each_form_is_read_as_its_type_and_written_back(self, text: str, kind: type[Any]) -> None:
        request = read(text)
        assert isinstance(request.buckets, kind)
        assert read(write_model(request)) == request
        assert read(request.model_dump_json()) == request

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (
                "buckets:\n  input_tokens: [5]\n  output_tokens: [5]\n  share: [[0.9]]",
                "line 4: buckets.share: sums to 0.9, expected 1 within 1e-06",
            ),
            ("buckets:\n  preset: azure-code\n  share: [[1.0]]", "line 3: buckets.share: is not a known field"),
            ("buckets:\n  preset: 5", "line 2: buckets.preset: expected text"),
            ("buckets:\n  trace_csv: a\n  step_s: 0", "line 3: buckets.step_s: input should be greater than 0, got 0"),
            ("buckets:\n  trace_file: /etc/passwd", "line 2: buckets.trace_file: is read by the command line only"),
            ("buckets: azure-code", "line 1: buckets: expected a mapping of fields"),
            ("buckets: {input_tokens: [5]}", "line 1: buckets.output_tokens: is required"),
        ],
    )
    def test_errors_name_the_field_of_the_intended_form(self, text: str, problem: str) -> None:
        with pytest.raises(DocumentError) as caught:
            read(text)
        assert str(caught.value.problems[0]).startswith(problem)

    def test_the_schema_names_all_three_forms(self) -> None:
        schema = TypeAdapter(Request).json_schema()
        assert {"SizeBuckets", "PresetSizes", "TraceSizes"} <= set(schema["$defs"])


class TestResolving:
    def test_a_histogram_resolves_to_itself(self) -> None:
        buckets = preset("azure-code").buckets((8000,), (2000,))
        assert resolve(buckets).buckets is buckets

    def test_a_preset_accepts_edges_and_names_its_source(self) -> None:
        sizes = resolve(PresetSizes(preset="azure-code", input_tokens=(1000, 8000)))
        assert sizes.buckets == preset("azure-code").buckets((1000, 8000))
        assert sizes.note.startswith("preset azure-code: Azure/AzurePublicDataset @ b469a11")
        assert (sizes.trace, sizes.demand) == (None, None)

    def test_a_preset_is_integrated_only_once_its_histogram_is_needed(self) -> None:
        sizes = resolve(PresetSizes(preset="azure-code", output_tokens=tuple(range(1, 257))))
        assert sizes.cells == len(preset("azure-code").input_edges) * 256
        assert "buckets" not in vars(sizes)
        assert pickle.loads(pickle.dumps(sizes)) == sizes  # noqa: S301 - our own

    def test_the_edges_of_a_preset_must_rise(self) -> None:
        with pytest.raises(DocumentError, match=r"buckets.input_tokens\[1\]: edges must rise: 500 after 2000"):
            read("buckets: {preset: azure-code, input_tokens: [2000, 500]}")

    def test_a_trace_resolves_to_a_histogram_and_a_demand(self) -> None:
        sizes = resolve(TraceSizes(trace_csv=TRACE))
        assert sizes.trace is not None
        assert sizes.trace.arrival_s.tolist() == [0, 600, 900]
        assert sizes.demand is not None
        assert sizes.demand.rates_rps == pytest.approx((1 / 300, 0, 1 / 300, 1 / 300))
        assert sizes.buckets.input_tokens == (100, 1000, 5000)
        assert sizes.note == "a trace of 3 requests in 1,350 s"

    def test_a_trace_without_time_has_no_demand(self) -> None:
        assert resolve(TraceSizes(trace_csv="time,input_tokens,output_tokens\n0,1,1\n0,1,1\n")).demand is None

    @pytest.mark.parametrize(
        ("source", "violation"),
        [
            (PresetSizes(preset="azure"), (("preset",), "unknown size preset 'azure'; nearest: azure-code")),
            (
                TraceSizes(trace_csv=TRACE.replace("900,50", "-1,50")),
                (("trace_csv",), "line 3: input_tokens: expected"),
            ),
            (TraceSizes(trace_csv=TRACE, step_s=1e-4), (("step_s",), "cuts the trace into more than 1,000,000 steps")),
        ],
    )
    def test_an_unresolvable_source_is_reported_by_field(
        self, source: PresetSizes | TraceSizes, violation: tuple[tuple[str], str]
    ) -> None:
        with pytest.raises(RuleError) as caught:
            resolve(source)
        (path, message), *_ = caught.value.violations
        assert path == violation[0]
        assert message.startswith(violation[1])
