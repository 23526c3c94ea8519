"""The model catalogue: presets against published figures, and the sizes of weights and KV cache."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.documents import parse_document, read_model, validation_problems
from fleet.errors import DocumentError, UnknownNameError
from fleet.models import KvLayers, ModelArchitecture, ModelCatalogue, PublishedCount, builtin_models

SHIPPED = builtin_models().models
each_model = pytest.mark.parametrize("model", SHIPPED, ids=lambda model: model.name)

# `safetensors.total` of the model's page on huggingface.co.
CHECKPOINT_COUNTS = {
    "Llama-2-7B": 6_738_417_664 - 32 * 64,  # less the rotary table in each layer
    "Llama-2-70B": 68_976_653_312 - 80 * 64,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-4-Scout": 108_641_793_536 - 871_932_416,  # less the vision tower
    "Mistral-7B": 7_241_732_096,
    "Mixtral-8x7B": 46_702_792_704,
    "Mixtral-8x22B": 140_620_634_112,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "DeepSeek-V2": 235_741_434_880,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "Gemma-2-9B": 9_241_705_984,
    "Gemma-2-27B": 27_227_128_320,
    "Gemma-3-27B": 27_432_406_640 - 423_060_336,  # less the vision tower and its projector
    "Phi-3-mini": 3_821_079_552,
    "Phi-4": 14_659_507_200,
}

# From papers and model cards, in billions: total, active, parts that active omits, unit of the last digit.
PAPER_COUNTS = {
    "DeepSeek-V3": (671, 37, "", 1),  # arXiv 2412.19437
    "Kimi-K2": (1026, 32, "", 1),
    "GLM-4.5-Air": (106, 12, "embedding and head", 1),  # arXiv 2508.06471
    "gpt-oss-20b": (20.91, 3.61, "embedding", 0.01),  # arXiv 2508.10925
    "gpt-oss-120b": (116.83, 5.13, "embedding", 0.01),
    "Llama-4-Maverick": (400, 17, "", 1),
    "DeepSeek-V2": (236, 21, "", 1),  # arXiv 2405.04434
    "DeepSeek-V2-Lite": (15.7, 2.4, "embedding", 0.1),
    "Mixtral-8x7B": (46.7, 12.9, "", 0.1),  # arXiv 2401.04088
    "Mixtral-8x22B": (141, 39, "", 1),
    "Qwen3-30B-A3B": (30.5, 3.3, "", 0.1),
    "Qwen3-235B-A22B": (235, 22, "", 1),
}


def architecture(**changes: Any) -> dict[str, Any]:
    """A small mixture of experts: 4 layers, 2 of them with 8 experts of which 2 are active."""
    right: dict[str, Any] = {
        "name": "small",
        "family": "mixtral",
        "layers": 4,
        "hidden_size": 64,
        "vocab_size": 100,
        "attention": "gqa",
        "heads": 8,
        "kv_heads": 2,
        "head_dim": 8,
        "kv_cache": [{"layers": 4, "values_per_token": 32}],
        "moe_layers": 2,
        "experts": 8,
        "experts_active": 2,
        "expert_parameters": 1000,
        "parameters": 50_000,
        "embedding_parameters": 6_400,
    }
    return {**right, **changes}


class TestPresets:
    @pytest.mark.parametrize(("name", "count"), CHECKPOINT_COUNTS.items())
    def test_the_parameter_count_matches_the_checkpoint(self, name: str, count: int) -> None:
        assert builtin_models().get(name).parameters == count

    @pytest.mark.parametrize(("name", "printed"), PAPER_COUNTS.items())
    def test_the_parameter_count_matches_the_paper(self, name: str, printed: tuple[float, float, str, float]) -> None:
        total, active, left_out, unit = printed
        model = builtin_models().get(name)
        tables = {"": 0, "embedding": 1, "embedding and head": 2}[left_out]
        assert model.parameters / 1e9 == pytest.approx(total, abs=unit)
        assert (model.active_parameters - tables * model.embedding_parameters) / 1e9 == pytest.approx(active, abs=unit)

    def test_glm_publishes_a_count_with_its_speculative_layer_without_embeddings(self) -> None:
        # arXiv 2508.06471, table 1: the layer is a decoder layer, a projection of two hidden states and three norms.
        hidden, heads, kv_heads, expert = 5120, 96, 8, 3 * 5120 * 1536
        attention = hidden * 128 * (2 * heads + 2 * kv_heads) + 128 * (heads + 2 * kv_heads) + 2 * 128
        decoder = attention + 2 * hidden + 161 * expert + 160 * hidden + 160
        speculative = decoder + 2 * hidden * hidden + 3 * hidden
        model = builtin_models().get("GLM-4.5")
        assert (model.parameters - 2 * model.embedding_parameters + speculative) / 1e9 == pytest.approx(355, abs=0.5)

    @pytest.mark.parametrize(
        ("name", "bytes_per_token"),
        [
            ("Llama-2-7B", 2 * 32 * 32 * 128 * 2),
            ("Llama-3.1-8B", 131_072),
            ("Llama-3.1-70B", 327_680),
            ("Qwen2.5-7B", 57_344),
            ("Mixtral-8x7B", 131_072),
            ("DeepSeek-V3", 70_272),  # (512 + 64) x 61 layers
            ("DeepSeek-R1", 70_272),
            ("DeepSeek-V2", 69_120),
            ("gpt-oss-120b", 73_728),
            ("Gemma-3-27B", 507_904),
        ],
    )
    def test_kv_cache_bytes_per_token_at_two_bytes_per_value(self, name: str, bytes_per_token: int) -> None:
        assert builtin_models().get(name).kv_bytes_per_token(kv_bytes=2) == bytes_per_token

    def test_a_mixture_of_experts_has_its_expert_figures(self) -> None:
        model = builtin_models().get("deepseek-ai/DeepSeek-V3")
        assert (model.moe_layers, model.experts, model.experts_active, model.experts_shared) == (58, 256, 8, 1)
        assert model.expert_parameters == 3 * 7168 * 2048

    @each_model
    def test_each_preset_has_a_published_count_and_its_source(self, model: ModelArchitecture) -> None:
        assert model.published is not None
        assert (model.published_active is not None) == (model.experts > 0)
        assert model.source is not None
        assert model.date is not None
        assert (model.published.unlike_ours == 0) == (model.published.because is None)

    @each_model
    def test_active_parameters_are_at_most_all_parameters(self, model: ModelArchitecture) -> None:
        assert model.matmul_parameters <= model.active_parameters <= model.parameters
        assert (model.active_parameters < model.parameters) == (model.experts > 0)

    @pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", "LLAMA_3.1_8B"])
    def test_a_model_is_found_by_its_repository_name(self, name: str) -> None:
        assert builtin_models().get(name).name == "Llama-3.1-8B"

    def test_an_unknown_model_is_reported_with_the_nearest_names(self) -> None:
        with pytest.raises(UnknownNameError, match=r"unknown model 'Lama-3\.1-8B'; nearest: Llama-3\.1-8B"):
            builtin_models().get("Lama-3.1-8B")

    def test_writing_and_reading_gives_the_same_catalogue(self) -> None:
        assert ModelCatalogue.model_validate_json(builtin_models().model_dump_json()) == builtin_models()


class TestArithmetic:
    SMALL = ModelArchitecture.model_validate(architecture())

    def test_active_parameters_exclude_idle_experts(self) -> None:
        assert self.SMALL.routed_parameters == 2 * 8 * 1000
        assert self.SMALL.active_parameters == 50_000 - 2 * 6 * 1000

    def test_an_embedding_lookup_is_not_counted_as_matmul(self) -> None:
        tied = ModelArchitecture.model_validate(architecture(tied_embeddings=True))
        assert self.SMALL.matmul_parameters == self.SMALL.active_parameters - 6_400
        assert tied.matmul_parameters == tied.active_parameters

    def test_weight_bytes_depend_on_the_precision_of_experts(self) -> None:
        assert self.SMALL.weight_bytes(parameter_bytes=2) == 100_000
        assert self.SMALL.weight_bytes(parameter_bytes=2, expert_bytes=0.5) == (50_000 - 16_000) * 2 + 16_000 * 0.5

    def test_the_kv_cache_without_windows_grows_with_every_token(self) -> None:
        assert self.SMALL.kv_cache_bytes(tokens=1000, kv_bytes=1) == 1000 * self.SMALL.kv_bytes_per_token(kv_bytes=1)

    def test_a_window_bounds_the_kv_cache_of_its_layers(self) -> None:
        parts = [{"layers": 1, "values_per_token": 32}, {"layers": 3, "values_per_token": 32, "window_tokens": 10}]
        model = ModelArchitecture.model_validate(architecture(kv_cache=parts))
        assert model.kv_cache_bytes(tokens=10, kv_bytes=2) == 10 * model.kv_bytes_per_token(kv_bytes=2)
        assert model.kv_cache_bytes(tokens=1000, kv_bytes=2) == (1000 + 3 * 10) * 32 * 2

    @given(tokens=st.integers(0, 100_000), more=st.integers(0, 100_000), window=st.none() | st.integers(1, 50_000))
    def test_the_kv_cache_is_monotonic_and_bounded_by_the_rate_per_token(
        self, tokens: int, more: int, window: int | None
    ) -> None:
        part = KvLayers(layers=2, values_per_token=8, window_tokens=window)
        model = ModelArchitecture.model_validate(architecture(kv_cache=[part.model_dump()]))
        now = model.kv_cache_bytes(tokens=tokens, kv_bytes=1)
        assert now <= model.kv_cache_bytes(tokens=tokens + more, kv_bytes=1)
        assert now <= tokens * model.kv_bytes_per_token(kv_bytes=1)


class TestPublishedCount:
    @pytest.mark.parametrize(
        ("published", "ours", "admitted"),
        [
            (PublishedCount(count=100), 100, True),
            (PublishedCount(count=100), 101, False),
            (PublishedCount(count=7000, rounded_to=1000), 6_700, True),  # rounded up
            (PublishedCount(count=6000, rounded_to=1000), 6_700, True),  # cut off
            (PublishedCount(count=8000, rounded_to=1000), 6_700, False),
            (PublishedCount(count=110, unlike_ours=10, because="vision"), 100, True),
            (PublishedCount(count=90, unlike_ours=-10, because="no embedding"), 100, True),
        ],
    )
    def test_a_published_count_allows_for_its_rounding_and_stated_difference(
        self, published: PublishedCount, ours: int, *, admitted: bool
    ) -> None:
        assert published.admits(ours) is admitted


class TestRefuses:
    @pytest.mark.parametrize(
        ("changes", "path", "message"),
        [
            ({"kv_heads": 3}, ("kv_heads",), "must divide heads (8), got 3"),
            ({"kv_cache": [{"layers": 5, "values_per_token": 1}]}, ("kv_cache",), "at most layers (4), covers 5"),
            ({"moe_layers": 5}, ("moe_layers",), "must be at most layers (4), got 5"),
            ({"experts_active": 9}, ("experts_active",), "must be from 1 to experts (8), got 9"),
            ({"experts_active": 0}, ("experts_active",), "must be from 1 to experts (8), got 0"),
            ({"parameters": 20_000}, ("parameters",), "at least the embedding and the experts (22400), got 20000"),
            ({"published": {"count": 49_999}}, ("published", "count"), "must be within 1 of 50000"),
            ({"published_active": {"count": 1}}, ("published_active", "count"), "must be within 1 of 38000"),
            ({"layers": 0}, ("layers",), "greater than 0"),
            ({"attention": "linear"}, ("attention",), "'mha', 'gqa', 'mqa' or 'mla'"),
        ],
    )
    def test_an_invalid_model_is_refused_with_field_and_range(
        self, changes: dict[str, Any], path: tuple[str, ...], message: str
    ) -> None:
        with pytest.raises(ValidationError) as raised:
            ModelCatalogue.model_validate({"models": [architecture(**changes)]})
        [(found, text)] = validation_problems(raised.value)
        assert found == ("models", 0, *path)
        assert message in text


class TestUserFile:
    MINE = """
models:
  - name: harness-model
    aliases: [our/harness-model]
    config:
      model_type: qwen3
      hidden_size: 1024
      intermediate_size: 3072
      num_hidden_layers: 28
      num_attention_heads: 16
      num_key_value_heads: 8
      head_dim: 128
      vocab_size: 151936
      tie_word_embeddings: true
    published: {count: 596049920}  # as Qwen3-0.6B
"""

    def read(self, text: str) -> ModelCatalogue:
        return read_model(parse_document(text, name="mine.yaml"), ModelCatalogue)

    def test_a_users_file_may_contain_a_config(self) -> None:
        merged = builtin_models().overlaid(self.read(self.MINE))
        assert merged.get("our/harness-model").parameters == 596_049_920
        assert len(merged.models) == len(SHIPPED) + 1

    def test_a_users_file_may_contain_figures(self) -> None:
        catalogue = ModelCatalogue.model_validate({"models": [architecture()]})
        assert catalogue.get("small").active_parameters == 38_000

    @pytest.mark.parametrize(
        ("right", "wrong", "message"),
        [
            (
                "hidden_size: 1024",
                "hidden_size: 0",
                r"line 7: models\[0\]\.config\.hidden_size: .*greater than 0, got 0",
            ),
            (
                "model_type: qwen3",
                "model_type: rwkv",
                r"line 6: models\[0\]\.config\.model_type: must be one of .*qwen3",
            ),
            ("head_dim: 128", "head_dim: wide", r"line 12: models\[0\]\.config\.head_dim: expected a whole number"),
            ("count: 596049920", "count: 600000000", r"line 15: .*published\.count: must be within 1 of 596049920"),
            ("aliases:", "alias:", r"line 4: models\[0\]\.alias: is not a known field"),
        ],
    )
    def test_an_error_in_a_users_file_is_reported_with_its_line(self, right: str, wrong: str, message: str) -> None:
        with pytest.raises(DocumentError, match=message):
            self.read(self.MINE.replace(right, wrong))

    def test_the_schema_has_both_forms_of_a_model(self) -> None:
        schema = ModelCatalogue.model_json_schema(mode="validation")
        assert [each["$ref"] for each in schema["properties"]["models"]["items"]["anyOf"]] == [
            "#/$defs/ModelArchitecture",
            "#/$defs/HfModel",
        ]
