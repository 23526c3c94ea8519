"""The enumeration of replica options: which exist, their names, and which fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import DocumentError
from fleet.gpus import GpuSpec, builtin_gpus
from fleet.models import ModelArchitecture, builtin_models
from planner.options.builder import candidates
from planner.options.enumeration import HOST_GPUS, ConfigSpace, Layout, Shape, shapes, sixteen_bit
from planner.performance.config import WeightPrecision
from planner.request import PlanRequest
from tests.planner.estimators import simple
from tests.planner.requests import from_offers, offer

GPUS, MODELS = builtin_gpus(), builtin_models()
DENSE = MODELS.get("Llama-3.1-8B")
GPUS3 = ["T4", "L4", "A10G"]
EVERYTHING = ConfigSpace(
    precisions=("bf16", "fp16", "fp8", "fp4", "int8-wo", "int4-wo"),
    kv_precisions=("bf16", "fp8"),
    levels=(0.7, 1.0),
    roles=("both", "prefill", "decode"),
)


def named(model: str, gpu: str, gpus_per_instance: int, config_space: ConfigSpace = ConfigSpace()) -> list[str]:
    spec = GPUS.get(gpu)
    return [
        shape.name(spec)
        for shape in shapes(MODELS.get(model), spec, gpus_per_instance=gpus_per_instance, config_space=config_space)
    ]


class TestLayouts:
    def test_tensor_parallel_sizes_fill_the_instance(self) -> None:
        assert named("Llama-3.1-8B", "H100-SXM", 8) == ["tp1", "tp2", "tp4", "tp8"]
        assert named("Llama-3.1-8B", "H100-SXM", 6) == ["tp1", "tp2"]

    def test_beyond_the_fast_link_stages_form_a_pipeline(self) -> None:
        assert named("Llama-3.1-8B", "L40S", 4) == ["tp1", "tp1-pp2", "tp1-pp4"]

    def test_replicas_span_hosts_only_if_one_host_does_not_hold_the_weights(self) -> None:
        assert "tp8-pp2" in named("Llama-3.1-405B", "H100-SXM", 8)
        assert "tp8-pp2" not in named("Llama-3.1-405B", "B200", 8)
        assert named("Llama-3.1-70B", "L4", 1) == ["tp1"]

    def test_a_mixture_of_experts_may_use_expert_and_data_parallelism(self) -> None:
        found = named("DeepSeek-V3", "B200", 8)
        assert {"tp8", "tp8-ep8", "tp1-dp8-ep8"} <= set(found)
        assert not any("ep" in name for name in named("Llama-3.1-8B", "B200", 8))


class TestPrecisions:
    def test_the_16_bit_precision_of_the_gpu_is_not_in_the_name(self) -> None:
        assert (sixteen_bit(GPUS.get("T4")), sixteen_bit(GPUS.get("L4"))) == ("fp16", "bf16")
        assert named("Llama-3.1-8B", "T4", 1) == ["tp1"]

    @pytest.mark.parametrize(
        ("precision", "gpus"), [("bf16", ["L4", "A10G"]), ("fp8", ["L4", "A10G"]), ("fp16", GPUS3)]
    )
    def test_only_precisions_that_the_gpu_computes_or_unpacks_are_enumerated(
        self, precision: WeightPrecision, gpus: list[str]
    ) -> None:
        config_space = ConfigSpace(precisions=(precision,))
        assert [gpu for gpu in GPUS3 if named("Llama-3.1-8B", gpu, 1, config_space)] == gpus

    def test_names_contain_precision_cache_role_and_clock(self) -> None:
        shape = Shape(Layout(tensor_parallel=8, expert_parallel=8), "fp8", "fp8", 0.7, "decode")
        assert shape.name(GPUS.get("H100-SXM")) == "tp8-ep8-fp8-kv8-decode@0.7"


@given(
    st.sampled_from(MODELS.models),
    st.sampled_from(GPUS.gpus),
    st.sampled_from((1, 2, 4, 6, 8, 16, 72)),
)
def test_names_are_unique_and_replicas_tile_instances(
    model: ModelArchitecture, gpu: GpuSpec, gpus_per_instance: int
) -> None:
    found = list(shapes(model, gpu, gpus_per_instance=gpus_per_instance, config_space=EVERYTHING))
    names = [shape.name(gpu) for shape in found]
    assert len(set(names)) == len(names) == len(set(found))
    for shape in found:
        config = shape.config(DENSE, gpu, expert_imbalance=1.5)
        assert config.gpus == shape.gpus
        assert config.stage_gpus <= gpu.link_domain_gpus
        assert gpus_per_instance % shape.gpus == 0 or (
            gpus_per_instance >= HOST_GPUS and shape.gpus % gpus_per_instance == 0
        )
        assert config.expert_imbalance == (1.5 if config.expert_parallel > 1 else 1.0)


class TestCandidates:
    def test_each_configuration_is_estimated_once_for_all_offers(self) -> None:
        estimated: list[tuple[str, int]] = []

        def counting(config, slo, *, sizes, arrival_cv):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            estimated.append((config.gpu.name, config.gpus))
            return simple(config, slo, sizes=sizes, arrival_cv=arrival_cv)

        offers = [offer(f"here/{n}", "H100-SXM", 20 + n, gpus_per_instance=8, available=1) for n in range(30)]
        request = PlanRequest.model_validate(from_offers() | {"offers": offers})
        found = candidates(request, gpus=GPUS, models=MODELS, offers=request.offers or (), estimator=counting)
        assert sorted(estimated) == [("H100-SXM", gpus) for gpus in (1, 2, 4, 8)]
        assert len({candidate.name for candidate in found}) == len(found) >= 30

    def test_a_configuration_that_does_not_fit_is_no_candidate(self) -> None:
        request = PlanRequest.model_validate(
            from_offers(model="Llama-3.1-70B") | {"offers": [offer("here/h100x8", "H100-SXM", 20, gpus_per_instance=8)]}
        )
        found = candidates(request, gpus=GPUS, models=MODELS, offers=request.offers or (), estimator=simple)
        assert {candidate.gpus for candidate in found} == {2}  # one GPU is too small, wider stages only lose throughput

    def test_half_the_weight_bytes_fit_on_half_the_gpus(self) -> None:
        offers = [offer("here/h100x8", "H100-SXM", 20, gpus_per_instance=8)]
        written = from_offers(model="Llama-3.1-70B", precisions=["bf16", "int4-wo"]) | {"offers": offers}
        request = PlanRequest.model_validate(written)
        found = candidates(request, gpus=GPUS, models=MODELS, offers=request.offers or (), estimator=simple)
        assert "here/h100x8/tp1-int4-wo" in {candidate.name for candidate in found}

    def test_a_gpu_that_computes_in_none_of_the_precisions_is_named(self) -> None:
        written = from_offers(precisions=["bf16"]) | {"offers": [offer("here/t4", "T4", 0.3)]}
        request = PlanRequest.model_validate(written)
        with pytest.raises(DocumentError, match="no option can serve bucket 500x500: T4: computes in none of bf16"):
            candidates(request, gpus=GPUS, models=MODELS, offers=request.offers or (), estimator=simple)
