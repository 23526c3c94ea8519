"""Every format gives the same kind of points, and an error names the field as the file does."""

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import parse_document, read_model, write_model
from fleet.errors import DocumentError
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.profiles import Format, Given, MeasuredPoint, Profiles, own_csv, read_points
from planner.profiles.imports import Imported
from planner.profiles.points import Latency
from tests.planner.profiles import samples
from tests.planner.profiles.samples import GUIDELLM, GUIDELLM_0_3, OWN, OWN_CSV, SGLANG, SILICON, VLLM, VLLM_DETAILS

H100 = Given(gpu="H100")


def read(text: str, given: Given | None = None, form: Format | None = None) -> Imported:
    return read_points(text, name="result", gpus=builtin_gpus(), models=builtin_models(), given=given, form=form)


def one(text: str, given: Given | None = None) -> MeasuredPoint:
    (point,) = read(text, given).points
    return point


class TestVllm:
    def test_a_result_with_metadata_is_complete(self) -> None:
        imported = read(samples.text(VLLM))
        assert imported.format is Format.VLLM
        assert imported.points == (
            MeasuredPoint(
                model="Llama-3.1-8B",
                gpu="H100-SXM",
                tensor_parallel=2,
                precision="bf16",
                engine="vllm",
                engine_version="0.19.0",
                input_tokens=1024,
                output_tokens=256,
                offered_rps=4,
                achieved_rps=3.9,
                ttft_ms=Latency(mean=60, p50=50, p99=150),
                tpot_ms=Latency(mean=12, p50=11.5, p99=15),
                requests=200,
                date=date(2026, 11, 3),
                source="result",
            ),
        )

    def test_statistics_that_were_not_saved_are_computed_from_the_details(self) -> None:
        bare = {key: value for key, value in VLLM.items() if not key.endswith("_ms")}
        point = one(samples.text(bare | VLLM_DETAILS))
        assert point.ttft_ms == Latency(mean=250, p50=200, p90=400, p95=400, p99=400)
        assert point.tpot_ms.mean == pytest.approx(80 / 3)
        assert point.tpot_ms.p99 == pytest.approx(50)
        assert point.e2e_ms.mean == pytest.approx((140 + 280 + 350 + 400) / 4)
        assert (point.requests, point.failed) == (4, 1)

    def test_statistics_from_details_take_precedence_over_saved_ones(self) -> None:
        """Tools interpolate: their p99 of a few requests can be below the p95 of an actual request."""
        assert one(samples.text(VLLM | VLLM_DETAILS)).ttft_ms == Latency(mean=250, p50=200, p90=400, p95=400, p99=400)

    def test_all_saved_percentiles_are_read(self) -> None:
        more = {"p90_ttft_ms": 100.0, "p95_ttft_ms": 120.0, "mean_e2el_ms": 3000.0, "p50_e2el_ms": 2900.0}
        point = one(samples.text(VLLM | more))
        assert (point.ttft_ms.p90, point.ttft_ms.p95) == (100, 120)
        assert point.e2e_ms == Latency(mean=3000, p50=2900)

    @pytest.mark.parametrize(
        ("change", "offered", "concurrency"),
        [
            ({"request_rate": "inf", "max_concurrency": 16}, None, 16),
            ({"request_rate": 4.0, "max_concurrency": 16}, None, 16),
            ({"request_rate": "inf"}, None, 31),
            ({"request_rate": 4.0}, 4.0, None),
        ],
    )
    def test_a_limit_on_requests_in_flight_makes_a_closed_loop(
        self, change: dict[str, Any], offered: float | None, concurrency: float | None
    ) -> None:
        point = one(samples.text(VLLM | change))
        assert (point.offered_rps, point.concurrency) == (offered, concurrency)

    def test_appended_results_and_arrays_are_all_read(self) -> None:
        second = VLLM | {"request_rate": 8.0}
        for text in (samples.text(VLLM, second), json.dumps([VLLM, second], indent=1)):
            assert [point.offered_rps for point in read(text).points] == [4, 8]

    def test_the_file_takes_precedence_over_options(self) -> None:
        given = Given(gpu="L4", tensor_parallel=8, engine_version="0.1", source="lab")
        point = one(samples.text({key: value for key, value in VLLM.items() if key != "version"}), given)
        assert (point.gpu, point.tensor_parallel, point.engine_version) == ("H100-SXM", 2, "0.1")
        assert point.source == "lab"

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"gpu": "H1000"}, "line 1: gpu: unknown GPU 'H1000'; nearest: H100"),
            ({"gpu": None}, "line 1: gpu: is required: the file does not state it, so give it as an option"),
            ({"mean_ttft_ms": -1.0}, "line 1: mean_ttft_ms: input should be greater than 0, got -1.0"),
            ({"p99_tpot_ms": "fast"}, "line 1: p99_tpot_ms: expected a number, got 'fast'"),
            ({"p99_tpot_ms": 5.0}, "line 1: p99_tpot_ms: 5 is below a lower percentile, expected at least 11.5"),
            ({"request_throughput": float("nan")}, "line 1: request_throughput: expected a finite number, got nan"),
            ({"completed": 0}, "line 1: completed: input should be greater than or equal to 1, got 0"),
            ({"request_rate": "fast"}, "line 1: request_rate: expected a number, got 'fast'"),
            ({"tp": "two"}, "line 1: tp: expected a whole number, got 'two'"),
            ({"date": "yesterday"}, "line 1: date: expected a date in ISO 8601"),
        ],
    )
    def test_a_defect_is_reported_under_the_name_in_the_file(self, change: dict[str, Any], problem: str) -> None:
        with pytest.raises(DocumentError) as caught:
            read(samples.text(VLLM | change))
        assert any(str(found).startswith(problem) for found in caught.value.problems), str(caught.value)

    def test_the_line_of_a_defective_appended_result_is_reported(self) -> None:
        with pytest.raises(DocumentError, match="line 2: request_throughput: input should be greater than 0"):
            read(samples.text(VLLM, VLLM | {"request_throughput": 0.0}))


class TestSglang:
    def test_the_server_reports_its_configuration(self) -> None:
        imported = read(samples.text(SGLANG), H100)
        assert imported.format is Format.SGLANG
        (point,) = imported.points
        assert (point.model, point.gpu, point.tensor_parallel) == ("Qwen3-32B", "H100-SXM", 4)
        assert (point.engine, point.engine_version, point.precision) == ("sglang", "0.5.9", "fp8")
        assert point.e2e_ms == Latency(mean=5000, p50=4800, p90=6000, p99=7000)
        assert (point.offered_rps, point.achieved_rps, point.requests) == (8, 7.5, 300)

    def test_results_without_a_model_need_it_as_an_option(self) -> None:
        old = {key: value for key, value in SGLANG.items() if key != "server_info"}
        with pytest.raises(DocumentError, match="model: is required: the file does not state it"):
            read(samples.text(old), H100)
        assert one(samples.text(old), Given(gpu="H100", model="My-Own", tensor_parallel=2)).model == "My-Own"

    def test_an_unlimited_rate_is_infinity_in_json(self) -> None:
        text = json.dumps(SGLANG | {"request_rate": float("inf")})
        assert "Infinity" in text
        point = one(text, H100)
        assert (point.offered_rps, point.concurrency) == (None, 60)

    def test_a_trace_run_reports_the_mean_requests_in_flight(self) -> None:
        newest = SGLANG | {"request_rate": "trace"}
        del newest["max_concurrent_requests"]
        assert one(json.dumps(newest), H100).concurrency == 37.5


class TestGuidellm:
    def test_each_benchmark_is_a_point(self) -> None:
        imported = read(json.dumps(GUIDELLM), Given(gpu="H100", tensor_parallel=4, engine="vllm"))
        assert imported.format is Format.GUIDELLM
        pressed = [(point.offered_rps, point.concurrency) for point in imported.points]
        assert pressed == [(None, 1), (None, 8), (3.0, 6.5), (None, 6.5)]
        last = imported.points[-1]
        assert last.model == "Llama-3.1-70B"
        assert last.ttft_ms == Latency(mean=80, p50=70, p90=110, p95=130, p99=200)
        assert last.tpot_ms == Latency(mean=18, p50=17.5, p90=20, p95=21, p99=22)
        assert last.e2e_ms == Latency(mean=2500, p50=2400, p90=3000, p95=3100, p99=3500)
        assert (last.input_tokens, last.output_tokens, last.achieved_rps) == (512, 128, 6)
        assert (last.requests, last.failed, last.date) == (120, 2, date(2026, 11, 3))

    def test_reports_of_version_0_3_are_read(self) -> None:
        (point,) = read(json.dumps(GUIDELLM_0_3), H100).points
        assert (point.model, point.offered_rps, point.requests, point.failed) == ("Llama-3.1-8B", 2, 100, 1)
        assert point.date == date(2026, 11, 3)

    def test_zero_means_not_recorded(self) -> None:
        report = json.loads(json.dumps(GUIDELLM))
        for benchmark in report["benchmarks"]:
            benchmark["metrics"]["time_to_first_token_ms"] = samples.distribution(0, 0, 0, 0, 0)
        assert not read(json.dumps(report), H100).points[0].ttft_ms.known

    @pytest.mark.parametrize(
        ("path", "value", "problem"),
        [
            (
                ("metrics", "requests_per_second", "successful", "mean"),
                -2,
                "benchmarks[1].metrics.requests_per_second.",
            ),
            (("metrics", "request_latency", "successful", "mean"), "x", "benchmarks[1].metrics.request_latency."),
            (("config", "strategy", "streams"), 0, "benchmarks[1].config.strategy.streams: input should be greater"),
        ],
    )
    def test_a_defect_is_reported_with_its_benchmark(self, path: tuple[str, ...], value: Any, problem: str) -> None:
        report = json.loads(json.dumps(GUIDELLM))
        inner = report["benchmarks"][1]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        with pytest.raises(DocumentError) as caught:
            read(json.dumps(report), H100)
        assert str(caught.value.problems[0]).startswith(f"line 1: {problem}")

    @pytest.mark.parametrize("benchmarks", [[], "none", {}, [5]])
    def test_a_report_needs_benchmarks(self, benchmarks: Any) -> None:
        with pytest.raises(DocumentError, match="benchmarks"):
            read(json.dumps({"benchmarks": benchmarks}), H100)


class TestSilicon:
    def test_the_rate_follows_from_the_requests_in_flight(self) -> None:
        imported = read(SILICON)
        assert (imported.format, imported.left_out) == (Format.SILICON, 1)
        first, second = imported.points
        assert first.achieved_rps == pytest.approx(8 / 2.0)  # 200 ms and 100 more tokens at 18 ms: two seconds
        assert first.e2e_ms.mean == pytest.approx(2000)
        assert (first.gpu, first.precision, first.tensor_parallel, first.expert_parallel) == ("H100-SXM", "fp8", 2, 1)
        assert (first.date, first.source) == (date(2026, 2, 3), "db-dump/2026-01-01")
        assert (second.precision, second.configuration.gpus, second.expert_parallel) == ("fp4", 16, 16)
        assert (second.engine_version, second.date) == (None, None)

    @pytest.mark.parametrize(
        ("old", "new", "problem"),
        [
            ("200.0,18.0", "200.0,fast", "line 2: silicon_tpot_ms: expected a number, got 'fast'"),
            ("b200_sxm,fp4,agg", "b2000,fp4,agg", "line 3: system: unknown GPU 'b2000'; nearest: B200"),
            ("1024,101,fp8_block", "0,101,fp8_block", "line 2: isl: input should be greater than or equal to 1, got 0"),
            ("a,db-dump", "a,b,db-dump", "line 2: has 22 columns, expected 21 as the header"),
        ],
    )
    def test_a_defect_is_reported_by_line_and_column(self, old: str, new: str, problem: str) -> None:
        with pytest.raises(DocumentError) as caught:
            read(SILICON.replace(old, new))
        assert any(str(found).startswith(problem) for found in caught.value.problems), str(caught.value)


latencies = st.builds(
    lambda values, mean: Latency(mean=mean, **dict(zip(("p50", "p90", "p95", "p99"), sorted(values), strict=True))),
    st.lists(st.floats(0.01, 1e5), min_size=4, max_size=4),
    st.none() | st.floats(0.01, 1e5),
)
names = st.none() | st.text("abc-. 019", min_size=1, max_size=8).filter(lambda name: name == name.strip())
points = st.builds(
    MeasuredPoint,
    model=st.sampled_from(["Llama-3.1-8B", "something else"]),
    gpu=st.sampled_from(["H100-SXM", "L4"]),
    tensor_parallel=st.integers(1, 8),
    pipeline_parallel=st.integers(1, 2),
    data_parallel=st.integers(1, 2),
    expert_parallel=st.integers(1, 2),
    precision=st.sampled_from([None, "bf16", "fp8"]),
    engine=names,
    engine_version=names,
    input_tokens=st.floats(1, 1e5),
    output_tokens=st.floats(1, 1e5),
    offered_rps=st.none() | st.floats(0.01, 1e3),
    concurrency=st.floats(0.01, 1e3),
    achieved_rps=st.floats(0.01, 1e3),
    ttft_ms=latencies,
    tpot_ms=latencies,
    e2e_ms=st.just(Latency()),
    requests=st.none() | st.integers(1, 1000),
    failed=st.integers(0, 10),
    date=st.none() | st.dates(),
    source=st.just("lab"),
)


class TestOwnFormats:
    def test_a_document_of_points_is_read(self) -> None:
        imported = read(OWN)
        assert imported.format is Format.OWN
        assert imported.points[0].gpu == "H100-SXM"
        assert imported.points[0].tpot_ms == Latency(mean=12, p99=20)
        as_json = json.dumps(parse_document(OWN, name="x").data)
        assert read(as_json).points == imported.points

    def test_a_csv_table_of_points_is_read(self) -> None:
        imported = read(OWN_CSV)
        assert imported.format is Format.OWN_CSV
        assert [point.ttft_ms for point in imported.points] == [Latency(mean=150, p99=600), Latency(mean=300, p99=2500)]
        assert imported.points[0].engine_version == "0.19"

    @given(st.lists(points, min_size=1, max_size=5))
    def test_written_points_read_back_unchanged(self, measured: list[MeasuredPoint]) -> None:
        profiles = Profiles(points=tuple(measured))
        assert read_model(parse_document(write_model(profiles), name="x"), Profiles) == profiles
        assert read(own_csv(measured)).points == profiles.points
        assert read(profiles.model_dump_json()).points == profiles.points

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (OWN.replace("gpu: H100", "gpu: H1000"), "line 3: points[0].gpu: unknown GPU 'H1000'; nearest: H100"),
            (OWN.replace("    concurrency: 16\n", ""), "line 2: points[0]: give offered_rps, concurrency or both"),
            (OWN.replace("{mean: 12, p99: 20}", "{}"), "line 2: points[0]: gives no latency, expected at least one of"),
            (OWN.replace("achieved_rps: 5", "achieved_rps: .nan"), "line 7: points[0].achieved_rps: expected a finite"),
            (OWN.replace("p99: 20", "p50: 30, p99: 20"), "line 8: points[0].tpot_ms.p99: 20 is below a lower percent"),
            (OWN_CSV.replace("tpot_mean_ms", "tpot_ms"), "line 1: tpot_ms: is not a known column; nearest: tpot_"),
            (
                OWN_CSV.replace("ttft_mean_ms", "ttft_p50_ms").replace("300,2500", "300,250"),
                "line 3: ttft_p99_ms: 250 is below a lower percentile, expected at least 300",
            ),
            (
                OWN_CSV.replace("500,100,4,", "500,100,-4,"),
                "line 3: offered_rps: input should be greater than 0, got -4",
            ),
            (OWN_CSV.replace("Llama-3.1-8B,L4,1,fp8,vllm,0.19,500,100,4,", "Llama-3.1-8B,"), "line 3: has 7 columns"),
            (OWN_CSV.splitlines()[0], "has no rows, expected a header and at least one point"),
            ("{}", "line 1: is in no known format (own, csv, vllm, sglang, guidellm, silicon)"),
            ("{", "line 1: is not JSON: "),
            ("[1]", "line 1: expected a JSON object, got 1"),
            ("[]", "is empty, expected at least one JSON object"),
            ("[" * 100_000, "line 1: is nested too deeply"),
            ("", "is empty, expected a mapping of fields"),
            ("hello", "line 1: expected a mapping of fields"),
        ],
    )
    def test_files_of_unknown_format_are_refused(self, text: str, problem: str) -> None:
        with pytest.raises(DocumentError) as caught:
            read(text)
        assert str(caught.value.problems[0]).startswith(problem), str(caught.value)

    def test_repeated_points_are_kept_once(self) -> None:
        found = read(OWN_CSV).points
        profiles = Profiles(points=found[:1]).with_points(found)
        assert profiles.points == found
        ((configuration, count),) = profiles.configurations().items()
        assert str(configuration) == "Llama-3.1-8B on L4 tp1 (fp8 vllm 0.19)"
        assert count == 2
        assert profiles.of(configuration) == found
