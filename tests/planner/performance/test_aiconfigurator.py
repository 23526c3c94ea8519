"""Rows of public measurements: interpretation, corrections and rejections."""

from collections.abc import Iterable

import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.performance import aiconfigurator
from planner.performance.aiconfigurator import MeasuredPoint, Reading, read_points, silicon_models
from tests.planner.performance.synthetic_points import row


def read(rows: Iterable[dict[str, str]]) -> Reading:
    return read_points(rows, gpus=builtin_gpus(), models=(builtin_models(), silicon_models()))


def one(**given: object) -> MeasuredPoint:
    reading = read([row(**given)])
    assert reading.rejected == {}
    return reading.points[0]


def test_a_plain_row_becomes_one_point() -> None:
    point = one(precision="fp4", system="b200_sxm", backend="trtllm", silicon_ttft_ms=250.0, silicon_tpot_ms=12.5)
    config = point.config
    assert (config.model.name, config.gpu.name, config.engine) == ("Llama-3.1-8B", "B200", "trtllm")
    assert (config.precision, config.tensor_parallel, config.gpus) == ("fp4", 8, 8)
    assert (point.ttft_s, point.tpot_s) == (0.25, 0.0125)
    assert point.software_age == pytest.approx(59 / 365)


def test_a_repeated_measurement_counts_once_and_keeps_the_best_label() -> None:
    times = {"silicon_ttft_ms": 321.125, "silicon_tpot_ms": 9.875}
    worse = row(id="a", silicon_data_source="source_file=2026-04-06.csv", tp_size=4, **times)
    better = row(id="b", silicon_data_source="db-dump/2026-04-27; silicon_concurrency=16", tp_size=8, **times)
    for rows in ([worse, better], [better, worse]):
        reading = read(rows)
        assert [point.config.tensor_parallel for point in reading.points] == [8]
        assert reading.rejected == {aiconfigurator.DUPLICATE: 1}


def test_equal_tensor_and_expert_factors_of_a_moe_count_gpus_once() -> None:
    config = one(
        model_path="deepseek-ai/DeepSeek-R1", system="h200_sxm", tp_size=64, moe_tp_size=8, moe_ep_size=8
    ).config
    assert (config.gpus, config.tensor_parallel, config.expert_parallel) == (8, 8, 8)


def test_data_parallel_attention_excludes_tensor_parallelism() -> None:
    point = one(
        model_path="deepseek-ai/DeepSeek-R1",
        system="h200_sxm",
        silicon_data_source="db-dump; silicon_concurrency=128",
        tp_size=1,
        attention_dp_size=64,
        moe_tp_size=8,
        moe_ep_size=8,
        batch_size=2,
    )
    assert (point.config.tensor_parallel, point.config.attention_data_parallel) == (1, 8)
    assert point.concurrency == 128


def test_missing_attention_ranks_are_derived_from_the_expert_layout() -> None:
    config = one(
        model_path="Qwen/Qwen3-235B-A22B", system="h200_sxm", tp_size=2, attention_dp_size="", moe_tp_size=4
    ).config
    assert (config.tensor_parallel, config.attention_data_parallel) == (2, 2)


def test_speculative_runs_are_detected_by_software_version_and_date() -> None:
    source = "source_file=x.csv; measured=2026-02-05T00:00:00Z"
    given = {"model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm", "silicon_data_source": source}
    assert one(**given, backend_version="1.2.0rc6.post3").speculative
    assert not one(**given, backend_version="1.2.0rc6.post2").speculative


def test_a_disaggregated_deployment_has_two_layouts_and_counts() -> None:
    layout = {"tp_size": 4, "attention_dp_size": 1, "moe_tp_size": 4, "moe_ep_size": 1}
    point = one(
        mode="disagg",
        batch_size="",
        silicon_data_source="db-dump; silicon_concurrency=100",
        prefill_num_workers=3,
        decode_num_workers=2,
        **{f"prefill_{name}": value for name, value in layout.items()},
        **{f"decode_{name}": 2 * value for name, value in layout.items()},
    )
    assert point.prefill is not None
    assert (point.prefill.tensor_parallel, point.config.tensor_parallel) == (4, 8)
    assert (point.prefill_replicas, point.decode_replicas, point.concurrency) == (3, 2, 100)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"model_path": "nvidia/Llama-3.1-8B-Instruct-FP8", "system": "h200_sxm"}, aiconfigurator.ANOMALOUS),
        ({"id": "run_epnone_1"}, aiconfigurator.SEVERAL_REPLICAS),
        ({"mode": "disagg"}, aiconfigurator.NO_WORKERS),
        ({"tp_size": 36, "moe_tp_size": 36, "system": "gb200"}, aiconfigurator.TOTAL_GPUS),
        ({"batch_size": 512, "silicon_ttft_ms": 1e6}, aiconfigurator.ENGINE_CAP),
        ({"model_path": "nobody/nothing"}, aiconfigurator.UNKNOWN),
        ({"system": "abacus"}, aiconfigurator.UNKNOWN),
        ({"batch_size": ""}, aiconfigurator.UNREADABLE),
        ({"silicon_tpot_ms": ""}, aiconfigurator.UNREADABLE),
        ({"model_path": "meta-llama/Llama-3.1-405B", "tp_size": 2, "moe_tp_size": 2}, aiconfigurator.TOO_BIG),
    ],
)
def test_ambiguous_rows_are_rejected_and_counted(given: dict[str, object], reason: str) -> None:
    reading = read([row(**given)])
    assert reading.points == ()
    assert reading.rejected == {reason: 1}


def test_every_published_model_has_the_parameter_count_of_its_name() -> None:
    published = {"MiniMax-M2.5": 229e9, "Kimi-K2.5": 1.0e12, "GLM-5": 744e9, "Qwen3.5-397B-A17B": 397e9}
    for model in silicon_models().entries:
        assert model.parameters == pytest.approx(published[model.name], rel=0.03)
