"""The flags of a planned replica: those that the engine has, with the values that the throughput model assumes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner import Plan
from planner.engine_flags import (
    ENGINE_VERSIONS,
    ReplicaSettings,
    ServingEngine,
    checkpoint_of,
    engine_flags,
    replica_settings,
)
from planner.options.enumeration import Layout, Shape
from planner.performance.config import ReplicaConfig, chunk_tokens
from planner.performance.steps import step_costs
from tests.planner import requests
from tests.planner.export.plans import shapes
from tests.planner.requests import from_offers, offer, solved
from tests.testbed.contracts import flags_of, needs_contracts

# SGLang's list lacks the flags that its parser takes from elsewhere; docs.sglang.io has this one.
UNLISTED = {ServingEngine.VLLM: set[str](), ServingEngine.SGLANG: {"--dtype"}}
WEIGHTS = "deepseek-ai/DeepSeek-V3"


def settings(
    *, gpu: str = "H100-SXM", model: str = "DeepSeek-V3", max_context_tokens: int = 6000, **shape: Any
) -> ReplicaSettings:
    return replica_settings(
        Shape(**shape),
        model=builtin_models().get(model),
        named=None,
        gpu=builtin_gpus().get(gpu),
        max_context_tokens=max_context_tokens,
    )


def flags(engine: ServingEngine, **chosen: Any) -> dict[str, str]:
    """The flags with their values; "" for a switch."""
    words = engine_flags(settings(**chosen), engine).flags
    return {
        word: "" if position + 1 == len(words) or words[position + 1].startswith("--") else words[position + 1]
        for position, word in enumerate(words)
        if word.startswith("--")
    }


def vllm(**chosen: Any) -> dict[str, str]:
    return flags(ServingEngine.VLLM, **chosen)


def sglang(**chosen: Any) -> dict[str, str]:
    return flags(ServingEngine.SGLANG, **chosen)


@needs_contracts
@pytest.mark.parametrize("engine", ServingEngine)
@given(shape=st.one_of(shapes("both", experts=True), shapes("prefill", experts=True), shapes("decode", experts=True)))
def test_the_engine_has_every_flag_in_the_stated_version(engine: ServingEngine, shape: Shape) -> None:
    known = flags_of(engine, f"v{ENGINE_VERSIONS[engine]}") | UNLISTED[engine]
    found = engine_flags(settings(**{field: getattr(shape, field) for field in Shape.__dataclass_fields__}), engine)
    assert {word for word in found.flags if word.startswith("--")} <= known
    assert found.version == ENGINE_VERSIONS[engine]


def test_a_dense_model_on_two_gpus() -> None:
    chosen = {"model": "Llama-3.1-70B", "layout": Layout(tensor_parallel=2), "precision": "fp8", "kv_precision": "fp8"}
    assert vllm(**chosen) == {
        "--tensor-parallel-size": "2",
        "--quantization": "fp8",
        "--kv-cache-dtype": "fp8",
        "--max-model-len": "6000",
        "--max-num-seqs": "256",
        "--max-num-batched-tokens": "8192",
        "--gpu-memory-utilization": "0.9",
    }
    assert sglang(**chosen) == {
        "--model-path": "meta-llama/Llama-3.1-70B",
        "--tp-size": "2",
        "--quantization": "fp8",
        "--kv-cache-dtype": "fp8_e4m3",
        "--context-length": "6000",
        "--max-running-requests": "256",
        "--chunked-prefill-size": "8192",
        "--mem-fraction-static": "0.853",
    }


def test_vllm_counts_per_data_parallel_rank_and_sglang_for_all() -> None:
    layout = Layout(attention_data_parallel=8, expert_parallel=8)
    assert vllm(layout=layout).items() >= {
        ("--tensor-parallel-size", "1"),
        ("--data-parallel-size", "8"),
        ("--enable-expert-parallel", ""),
        ("--max-num-seqs", "256"),
        ("--max-num-batched-tokens", "8192"),
    }
    assert sglang(layout=layout).items() >= {
        ("--tp-size", "8"),
        ("--dp-size", "8"),
        ("--enable-dp-attention", ""),
        ("--ep-size", "8"),
        ("--max-running-requests", "2048"),
        ("--chunked-prefill-size", "65536"),
    }


def test_pipelines_and_redundant_experts() -> None:
    layout = Layout(tensor_parallel=8, expert_parallel=8, pipeline_parallel=2, redundant_experts=16)
    assert vllm(layout=layout)["--pipeline-parallel-size"] == "2"
    assert json.loads(vllm(layout=layout)["--eplb-config"]) == {"num_redundant_experts": 16}
    assert (sglang(layout=layout)["--pp-size"], sglang(layout=layout)["--ep-num-redundant-experts"]) == ("2", "16")
    assert "place export --engine sglang" in engine_flags(settings(layout=layout), ServingEngine.SGLANG).notes[0]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_roles_of_a_split(role: str) -> None:
    assert json.loads(vllm(role=role)["--kv-transfer-config"]) == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
    }
    assert sglang(role=role)["--disaggregation-mode"] == role
    assert "--kv-transfer-config" not in vllm()
    assert "--disaggregation-mode" not in sglang()


@pytest.mark.parametrize(
    ("precision", "of_vllm", "notes"),
    [
        ("bf16", {"--dtype": "bfloat16"}, 0),
        ("fp16", {"--dtype": "float16"}, 0),
        ("fp8", {"--quantization": "fp8"}, 0),
        ("int4-wo", {}, 1),
    ],
)
def test_the_precision_of_the_weights(precision: str, of_vllm: dict[str, str], notes: int) -> None:
    found = {flag: value for flag, value in vllm(precision=precision).items() if flag in {"--dtype", "--quantization"}}
    assert found == of_vllm
    noted = engine_flags(settings(precision=precision), ServingEngine.VLLM).notes
    assert len(noted) == notes
    assert all(precision in note for note in noted)


@given(ranks=st.sampled_from((1, 2, 4, 8)), gpu=st.sampled_from(("H100-SXM", "L4", "A100-80GB-SXM", "MI300X")))
def test_the_limits_are_those_of_the_throughput_model(ranks: int, gpu: str) -> None:
    found = settings(gpu=gpu, layout=Layout(attention_data_parallel=ranks, expert_parallel=ranks))
    config = ReplicaConfig(
        model=builtin_models().get("DeepSeek-V3"),
        gpu=builtin_gpus().get(gpu),
        attention_data_parallel=ranks,
        expert_parallel=ranks,
    )
    assert found.step_tokens == chunk_tokens(config)
    assert found.max_sequences == step_costs(config).max_sequences


def test_the_weights_are_those_of_the_request_or_the_first_of_the_catalogue() -> None:
    model = builtin_models().get("DeepSeek-V3")
    assert checkpoint_of(model, named="deepseek-ai/DeepSeek-R1-0528") == "deepseek-ai/DeepSeek-R1-0528"
    assert checkpoint_of(model, named="DeepSeek-V3") == WEIGHTS
    assert checkpoint_of(model.model_copy(update={"aliases": ()}), named=None) == "DeepSeek-V3"


class TestPlans:
    def test_every_option_from_offers_has_flags_of_both_engines(self) -> None:
        plan = solved(from_offers())
        for entry in plan.allocation:
            assert entry.settings is not None
            assert entry.engine_flags == {each: engine_flags(entry.settings, each) for each in ServingEngine}
            assert entry.settings.max_context_tokens == 4500  # the largest of two sizes
        assert Plan.model_validate_json(plan.model_dump_json()) == plan

    def test_the_context_is_that_of_the_largest_size_that_the_option_serves(self) -> None:
        """The L4 is far cheaper, and has no room for the long requests."""
        buckets = {"input_tokens": [500, 60_000], "output_tokens": [500], "share": [[0.99], [0.01]]}
        slo = {"tpot_ms": {"mean": 1000}, "ttft_ms": {"mean": 60_000}}
        offers = [offer("here/l4", "L4", 0.1), offer("here/h100", "H100-SXM", 30)]
        plan = solved(from_offers(buckets=buckets, slo=slo, rate_rps=200) | {"offers": offers})
        contexts = {entry.gpu: entry.settings.max_context_tokens for entry in plan.allocation if entry.settings}
        assert contexts == {"L4": 1000, "H100-SXM": 60_500}

    def test_an_option_that_the_request_gives_has_none(self) -> None:
        plan = solved(requests.given())
        assert all(entry.settings is None and not entry.engine_flags for entry in plan.allocation)

    def test_a_plan_of_an_older_release_has_none(self) -> None:
        older = solved(from_offers()).model_dump(mode="json")
        for entry in older["allocation"]:
            del entry["settings"], entry["engine_flags"]
        assert all(entry.settings is None for entry in Plan.model_validate_json(json.dumps(older)).allocation)
