"""Reading `config.json`: parameters against the tensors of checkpoints, windows, defaults and refusals."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.huggingface.config import SUPPORTED_MODEL_TYPES
from tests.fleet.huggingface.configs import (
    DEEPSEEK,
    LLAMA,
    MOE,
    deepseek_configs,
    deepseek_tensors,
    llama_configs,
    llama_tensors,
    read,
    refused,
    total,
    windows,
)


class TestCounts:
    @given(config=llama_configs())
    def test_the_parameters_of_a_dense_model_match_its_tensors(self, config: dict[str, Any]) -> None:
        assert read(config).parameters == total(llama_tensors(config))

    @given(config=deepseek_configs())
    def test_the_parameters_of_a_latent_mixture_of_experts_match_its_tensors(self, config: dict[str, Any]) -> None:
        assert read(config).parameters == total(deepseek_tensors(config))

    @given(config=llama_configs() | deepseek_configs(), more=st.integers(1, 5))
    def test_more_layers_mean_more_parameters_and_more_kv_cache(self, config: dict[str, Any], more: int) -> None:
        shallow, deep = read(config), read(config, num_hidden_layers=config["num_hidden_layers"] + more)
        assert shallow.parameters < deep.parameters
        assert shallow.kv_bytes_per_token(kv_bytes=1) < deep.kv_bytes_per_token(kv_bytes=1)

    @given(config=deepseek_configs())
    def test_active_parameters_are_at_most_all_parameters(self, config: dict[str, Any]) -> None:
        model = read(config)
        assert model.active_parameters <= model.parameters
        everyone_active = read(config, num_experts_per_tok=config["n_routed_experts"])
        assert everyone_active.active_parameters == everyone_active.parameters

    def test_tied_embeddings_are_stored_once(self) -> None:
        assert read(LLAMA).parameters - read(LLAMA, tie_word_embeddings=True).parameters == 128256 * 4096

    def test_speculative_layers_are_not_counted(self) -> None:
        assert read(DEEPSEEK, num_nextn_predict_layers=1) == read(DEEPSEEK)

    def test_unused_keys_of_a_real_file_change_nothing(self) -> None:
        other_keys = {
            "architectures": ["LlamaForCausalLM"],
            "bos_token_id": 128000,
            "eos_token_id": [128001, 128008],
            "quantization_config": {"quant_method": "fp8"},
            "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
            "torch_dtype": "bfloat16",
            "transformers_version": "4.43.0",
            "head_dim": None,
            "n_routed_experts": None,
        }
        assert read(LLAMA, **other_keys) == read(LLAMA)

    @pytest.mark.parametrize(
        ("model_type", "per_layer"),
        [
            ("mistral", 0),
            ("phi3", 0),
            ("qwen2", 64 + 2 * 16),  # query, key and value biases
            ("qwen3", 2 * 8),  # query and key norms per head
            ("gemma2", 2 * 64),  # two norms more
            ("gemma3_text", 2 * 64 + 2 * 8),
        ],
    )
    def test_families_add_biases_and_norms_to_a_llama_layer(self, model_type: str, per_layer: int) -> None:
        plain = {**LLAMA, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8}
        plain |= {"num_hidden_layers": 3, "intermediate_size": 96, "vocab_size": 100, "tie_word_embeddings": False}
        assert read(plain, model_type=model_type).parameters - read(plain).parameters == 3 * per_layer

    def test_glm_adds_query_and_key_norms_only_with_use_qk_norm(self) -> None:
        config = {**LLAMA, **MOE, "model_type": "glm4_moe"}
        assert read(config, use_qk_norm=True).parameters - read(config).parameters == 32 * 2 * 128

    @pytest.mark.parametrize(
        ("config", "parameters"),
        [
            ({"attention_bias": True}, 4096 + 2 * 1024 + 4096),
            ({"mlp_bias": True}, 2 * 14336 + 4096),
            ({"attention_bias": False, "mlp_bias": False}, 0),
        ],
    )
    def test_attention_and_mlp_biases_are_counted(self, config: dict[str, bool], parameters: int) -> None:
        assert read(LLAMA, **config).parameters - read(LLAMA).parameters == 32 * parameters

    @pytest.mark.parametrize(
        ("heads", "kind"), [({"num_key_value_heads": 32}, "mha"), ({}, "gqa"), ({"num_key_value_heads": 1}, "mqa")]
    )
    def test_attention_kinds(self, heads: dict[str, int], kind: str) -> None:
        assert read(LLAMA, **heads).attention == kind

    def test_latent_attention_caches_one_vector_for_all_heads(self) -> None:
        model = read(DEEPSEEK)
        assert (model.attention, model.head_dim) == ("mla", 192)
        assert model.kv_bytes_per_token(kv_bytes=2) == (512 + 64) * 61 * 2

    def test_latent_attention_adds_biases_to_its_low_rank_projections(self) -> None:
        biases = 1536 + (512 + 64) + 7168
        assert read(DEEPSEEK, attention_bias=True).parameters - read(DEEPSEEK).parameters == 61 * biases

    def test_a_family_may_have_a_fixed_head_dim(self) -> None:
        assert read({**LLAMA, "model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16}).head_dim == 128

    def test_heads_may_be_wider_than_the_hidden_size(self) -> None:
        wide = read(LLAMA, head_dim=256)
        assert wide.kv_bytes_per_token(kv_bytes=1) == 2 * read(LLAMA).kv_bytes_per_token(kv_bytes=1)

    @pytest.mark.parametrize(
        ("model_type", "shape", "rest", "parameters"),
        [
            ("gemma", (3072, 24576, 28, 16, 16, 256000), {}, 8_537_680_896),  # Gemma 7B
            (  # Qwen1.5-MoE-A2.7B
                "qwen2_moe",
                (2048, 5632, 24, 16, 16, 151936),
                {**MOE, "num_experts": 60, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
                14_315_784_192,
            ),
            (  # Qwen3-Coder-480B-A35B
                "qwen3_moe",
                (6144, 8192, 62, 96, 8, 151936),
                {**MOE, "num_experts": 160, "moe_intermediate_size": 2560, "head_dim": 128},
                480_154_875_392,
            ),
            (  # gpt-oss-20b: its paper rounds away the sinks of the heads and the biases of the experts
                "gpt_oss",
                (2880, 2880, 24, 64, 8, 201088),
                {"num_local_experts": 32, "num_experts_per_tok": 4},
                20_914_757_184,
            ),
            (  # MiniMax-M2.5
                "minimax_m2",
                (3072, 1536, 62, 48, 8, 200064),
                {"num_local_experts": 256, "num_experts_per_tok": 8, "head_dim": 128},
                228_689_764_864,
            ),
        ],
    )
    def test_published_shapes_give_the_published_number_of_parameters(
        self, model_type: str, shape: tuple[int, ...], rest: dict[str, int], parameters: int
    ) -> None:
        keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
        config = dict(zip((*keys, "vocab_size"), shape, strict=True)) | rest
        assert read({"model_type": model_type, **config}).parameters == parameters

    def test_every_supported_model_type_is_read(self) -> None:
        everything = {**DEEPSEEK, **MOE, "shared_expert_intermediate_size": 32, "intermediate_size_mlp": 64}
        for model_type in SUPPORTED_MODEL_TYPES:
            model = read(everything, model_type=model_type)
            assert model.family == model_type
            assert 0 < model.active_parameters <= model.parameters


class TestExpertLayers:
    def test_the_first_layers_may_be_dense(self) -> None:
        assert read(DEEPSEEK, first_k_dense_replace=5).moe_layers == 56

    def test_deepseek_may_have_experts_in_every_nth_layer(self) -> None:
        assert read(DEEPSEEK, first_k_dense_replace=1, moe_layer_freq=2).moe_layers == 30

    @pytest.mark.parametrize(("step", "dense", "moe_layers"), [(1, [], 24), (2, [], 12), (1, [0, 23], 22)])
    def test_qwen_may_skip_expert_layers(self, step: int, dense: list[int], moe_layers: int) -> None:
        config = {**LLAMA, **MOE, "model_type": "qwen3_moe", "num_hidden_layers": 24}
        assert read(config, decoder_sparse_step=step, mlp_only_layers=dense).moe_layers == moe_layers

    @pytest.mark.parametrize(
        ("placed", "moe_layers"), [({"interleave_moe_layer_step": 2}, 16), ({"moe_layers": [3]}, 1)]
    )
    def test_llama_4_may_alternate_dense_and_expert_layers(self, placed: dict[str, Any], moe_layers: int) -> None:
        config = {**LLAMA, **MOE, "model_type": "llama4_text", "intermediate_size_mlp": 100}
        assert read(config, **placed).moe_layers == moe_layers

    def test_no_experts_make_a_dense_model(self) -> None:
        model = read(DEEPSEEK, n_routed_experts=None, n_shared_experts=None, num_experts_per_tok=None)
        assert (model.moe_layers, model.experts, model.experts_active, model.experts_shared) == (0, 0, 0, 0)
        assert model.active_parameters == model.parameters

    def test_the_number_of_experts_may_have_three_key_names(self) -> None:
        config = {**LLAMA, "model_type": "mixtral", "num_experts_per_tok": 2}
        counts = {
            read(config, **{key: 8}).parameters for key in ("num_local_experts", "num_experts", "n_routed_experts")
        }
        assert len(counts) == 1


class TestWindows:
    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({"model_type": "llama", "sliding_window": 4096}, {None: 32}),
            ({"model_type": "mistral", "sliding_window": 1000}, {1000: 32}),
            ({"model_type": "mistral", "sliding_window": None}, {None: 32}),
            ({"model_type": "mistral"}, {4096: 32}),  # the default of the family
            ({"model_type": "qwen2", "sliding_window": 1000, "use_sliding_window": False}, {None: 32}),
            (
                {"model_type": "qwen2", "sliding_window": 1000, "use_sliding_window": True, "max_window_layers": 28},
                {None: 28, 1000: 4},
            ),
            ({"model_type": "qwen3_moe", **MOE, "sliding_window": 1000, "use_sliding_window": True}, {1000: 32}),
            (
                {
                    **MOE,
                    "model_type": "qwen2_moe",
                    "shared_expert_intermediate_size": 8,
                    "sliding_window": 1000,
                    "use_sliding_window": True,
                    "max_window_layers": 20,
                },
                {None: 22, 1000: 10},
            ),
            ({"model_type": "gemma2", "sliding_window": 1000}, {None: 16, 1000: 16}),
            ({"model_type": "gemma3_text", "sliding_window": 1000}, {None: 5, 1000: 27}),
            ({"model_type": "gemma3_text", "sliding_window": 1000, "sliding_window_pattern": 2}, {None: 16, 1000: 16}),
            ({"model_type": "gpt_oss", **MOE}, {None: 16, 128: 16}),
            ({"model_type": "llama4_text", "intermediate_size_mlp": 8, **MOE}, {None: 8, 8192: 24}),
            (
                {"model_type": "llama4_text", "intermediate_size_mlp": 8, **MOE, "no_rope_layers": [1] * 31 + [0]},
                {None: 1, 8192: 31},
            ),
        ],
    )
    def test_layers_have_the_windows_of_their_family(
        self, config: dict[str, Any], expected: dict[int | None, int]
    ) -> None:
        assert windows(read({**LLAMA, **config})) == expected

    def test_layer_types_override_the_familys_window_pattern(self) -> None:
        types = list(itertools.islice(itertools.cycle(["full_attention", "sliding_attention"]), 32))
        model = read(LLAMA, model_type="gemma3_text", sliding_window=512, layer_types=types)
        assert windows(model) == {None: 16, 512: 16}


class TestNested:
    def test_the_decoder_of_a_multimodal_model_is_read(self) -> None:
        text = {**LLAMA, "model_type": "qwen3_vl_text", "head_dim": 128}
        wrapped = {"model_type": "qwen3_vl", "text_config": text, "vision_config": {"hidden_size": 1152}}
        assert read(wrapped).parameters == read(text).parameters

    def test_tied_embeddings_may_be_set_outside_the_text_config(self) -> None:
        wrapped = {"model_type": "qwen3_vl", "text_config": {**LLAMA, "model_type": "qwen3_vl_text"}}
        assert read(wrapped, tie_word_embeddings=True).tied_embeddings

    def test_missing_keys_of_gemma_3_get_the_defaults_of_its_class(self) -> None:
        text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
        model = read({"model_type": "gemma3", "text_config": {**text, "sliding_window": 1024}})
        assert model.parameters == 4_300_079_472 - 419_816_304  # Gemma 3 4B less its vision tower and projector
        assert (model.heads, model.kv_heads, model.head_dim, model.vocab_size) == (8, 4, 256, 262208)

    def test_an_error_in_the_text_config_is_reported_with_its_path(self) -> None:
        message = refused({"text_config": {**LLAMA, "hidden_size": -8}})
        assert message == "model: text_config.hidden_size: input should be greater than 0, got -8"

    def test_a_text_config_of_another_type_is_refused(self) -> None:
        assert "text_config: expected a mapping" in refused({"text_config": "llama"})


class TestRefuses:
    def test_an_unknown_model_type_is_refused_with_the_supported_ones(self) -> None:
        message = refused(LLAMA, model_type="mamba2")
        assert message.endswith("got 'mamba2'")
        assert all(model_type in message for model_type in SUPPORTED_MODEL_TYPES)

    @pytest.mark.parametrize("model_type", [..., None, 7, ["llama"]])
    def test_an_invalid_model_type_is_refused(self, model_type: Any) -> None:
        assert "model_type: " in refused(LLAMA, model_type=model_type)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"vocab_size": ...}, "vocab_size: is required"),
            ({"hidden_size": None}, "hidden_size: is required"),
            ({"hidden_size": 0}, "hidden_size: input should be greater than 0, got 0"),
            ({"hidden_size": 4096.0}, "hidden_size: expected a whole number, got 4096.0"),
            ({"num_hidden_layers": 10**15}, "num_hidden_layers: input should be less than or equal to 10000"),
            (
                {"num_attention_heads": 31},
                "num_attention_heads: must divide hidden_size (4096) without head_dim, got 31",
            ),
            ({"num_key_value_heads": 7}, "num_key_value_heads: must divide num_attention_heads (32), got 7"),
            ({"tie_word_embeddings": "no"}, "tie_word_embeddings: expected true or false, got 'no'"),
            ({"layer_types": ["full_attention"] * 3}, "layer_types: must have num_hidden_layers (32) entries, has 3"),
            (
                {"layer_types": ["full_attention"] * 31 + ["linear_attention"]},
                "layer_types[31]: must be full_attention, sliding_attention or chunked_attention, got 'linear",
            ),
            (
                {"model_type": "mixtral", "num_experts_per_tok": 2},
                "n_routed_experts: is required for model_type 'mixtral'",
            ),
            (
                {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9},
                "num_experts_per_tok: must be from 1 to the experts (8), got 9",
            ),
            ({"model_type": "deepseek_v2"}, "kv_lora_rank: is required for model_type 'deepseek_v2'"),
        ],
    )
    def test_a_refusal_names_the_key_and_the_range(self, changes: dict[str, Any], message: str) -> None:
        assert message in refused(LLAMA, **changes)

    def test_all_errors_are_reported_at_once(self) -> None:
        message = refused(LLAMA, hidden_size=-1, vocab_size=...)
        assert "hidden_size" in message
        assert "vocab_size" in message

    def test_an_impossible_model_is_rejected(self) -> None:
        assert "parameters: " in refused(LLAMA, hidden_size=10**8, intermediate_size=10**8, vocab_size=10**8)
