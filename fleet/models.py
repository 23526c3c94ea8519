"""Model architectures: weights, operations per token and cache per token of a decoder.

An entry has either all its figures, or the model's own Hugging Face `config.json` under `config`, from which
`fleet.huggingface.config` computes them.  The reader compares a published count with the computed one.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, model_validator

from fleet.catalogues import Catalogue, Entry, shipped_document
from fleet.documents import Frozen, Path, RuleError, dotted, read_model, validate_nested, validation_problems
from fleet.errors import DocumentError, Problem
from fleet.huggingface.config import decoder_facts

Size = Annotated[int, Field(gt=0, le=1_000_000_000)]
Amount = Annotated[int, Field(ge=0, le=1_000_000_000)]
Parameters = Annotated[int, Field(ge=0, le=1_000_000_000_000_000)]

CONFIG = "config"


class KvLayers(Frozen):
    """Layers with equal caches.  A layer with a window keeps that many tokens of any sequence."""

    layers: Size
    values_per_token: Size  # keys and values of all heads; for latent attention the latent and the rotary key
    window_tokens: Size | None = None


class PublishedCount(Frozen):
    """A parameter count as its authors print it, and what they count in addition (or, negative, what only we count)."""

    count: Annotated[int, Field(gt=0)]
    rounded_to: Annotated[int, Field(gt=0)] = 1  # 1 is exact; authors round up or down, so the tolerance is one unit
    unlike_ours: int = 0
    because: str | None = None

    def admits(self, ours: int) -> bool:
        """Whether our count is the published one within its rounding."""
        distance = abs(self.count - self.unlike_ours - ours)
        return distance < self.rounded_to


class ModelArchitecture(Entry):
    """A decoder-only language model, without towers for other media and layers for speculation."""

    family: str  # Hugging Face's `model_type`
    layers: Size
    hidden_size: Size
    vocab_size: Size
    max_context_tokens: Size | None = None

    attention: Literal["mha", "gqa", "mqa", "mla"]
    heads: Size
    kv_heads: Size
    head_dim: Size  # of queries and keys
    kv_cache: tuple[KvLayers, ...]  # layers with linear attention or none appear in none of these

    moe_layers: Amount = 0
    experts: Amount = 0  # routed ones in each MoE layer
    experts_active: Amount = 0  # routed experts that process one token
    experts_shared: Amount = 0  # experts that process every token
    expert_parameters: Parameters = 0  # of one routed expert in one layer

    parameters: Parameters
    embedding_parameters: Parameters
    tied_embeddings: bool = False  # the output head is the input embedding

    published: PublishedCount | None = None
    published_active: PublishedCount | None = None
    source: str | None = None
    date: dt.date | None = None

    @property
    def routed_parameters(self) -> int:
        """All routed experts of all layers: the parameters that expert placement moves."""
        return self.moe_layers * self.experts * self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses; its row of the embedding counts as the whole table."""
        idle_experts = self.experts - self.experts_active
        return self.parameters - self.moe_layers * idle_experts * self.expert_parameters

    @property
    def matmul_parameters(self) -> int:
        """Parameters that one token is multiplied with, two operations each; an untied embedding lookup has none."""
        return self.active_parameters - (0 if self.tied_embeddings else self.embedding_parameters)

    def weight_bytes(self, *, parameter_bytes: float, expert_bytes: float | None = None) -> float:
        """Size of the weights; `expert_bytes` where the routed experts have another precision."""
        routed_bytes = parameter_bytes if expert_bytes is None else expert_bytes
        return (self.parameters - self.routed_parameters) * parameter_bytes + self.routed_parameters * routed_bytes

    def kv_bytes_per_token(self, *, kv_bytes: float) -> float:
        """Cache of one more token while no window is full; `kv_bytes` is the size of one cached value."""
        return sum(part.layers * part.values_per_token for part in self.kv_cache) * kv_bytes

    def kv_cache_bytes(self, *, tokens: int, kv_bytes: float) -> float:
        """Cache of a sequence of this length, if the engine frees tokens that have left a window."""
        values = 0
        for part in self.kv_cache:
            kept = tokens if part.window_tokens is None else min(tokens, part.window_tokens)
            values += part.layers * part.values_per_token * kept
        return values * kv_bytes

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        RuleError.raise_for(_violations(self))
        return self


class HfModel(Entry):
    """A model given by its own `config.json`."""

    config: dict[str, Any]
    published: PublishedCount | None = None
    published_active: PublishedCount | None = None
    source: str | None = None
    date: dt.date | None = None

    def architecture(self) -> ModelArchitecture:
        try:
            facts = decoder_facts(self.config, name=self.name)
        except DocumentError as error:
            raise RuleError(((CONFIG, problem.path), problem.message) for problem in error.problems) from error
        return ModelArchitecture.model_validate({**self.model_dump(exclude={CONFIG}), **facts})


def _from_config(written: Any, info: ValidationInfo) -> Any:
    if isinstance(written, Mapping) and CONFIG in written:
        return validate_nested(HfModel, written, info).architecture()
    return written


WrittenModel = Annotated[
    ModelArchitecture, BeforeValidator(_from_config, json_schema_input_type=ModelArchitecture | HfModel)
]


class ModelCatalogue(Catalogue[ModelArchitecture]):
    """All known models."""

    kind: ClassVar[str] = "model"
    field: ClassVar[str] = "models"

    models: tuple[WrittenModel, ...]


@cache
def builtin_models() -> ModelCatalogue:
    return read_model(shipped_document("models.yaml"), ModelCatalogue)


def model_from_hf_config(config: Mapping[str, Any], *, name: str) -> ModelArchitecture:
    """The architecture of a `config.json`.  DocumentError names every wrong key and its range."""
    facts = decoder_facts(config, name=name)
    try:
        return ModelArchitecture.model_validate({"name": name, **facts})
    except ValidationError as error:
        problems = [Problem(dotted(path), message) for path, message in validation_problems(error)]
        raise DocumentError(name=name, problems=problems) from error


def _violations(model: ModelArchitecture) -> Iterator[tuple[Path, str]]:
    if model.heads % model.kv_heads:
        yield ("kv_heads",), f"must divide heads ({model.heads}), got {model.kv_heads}"
    cached_layers = sum(part.layers for part in model.kv_cache)
    if cached_layers > model.layers:
        yield ("kv_cache",), f"must cover at most layers ({model.layers}), covers {cached_layers}"
    if model.moe_layers > model.layers:
        yield ("moe_layers",), f"must be at most layers ({model.layers}), got {model.moe_layers}"
    if model.moe_layers and not 1 <= model.experts_active <= model.experts:
        yield ("experts_active",), f"must be from 1 to experts ({model.experts}), got {model.experts_active}"
    minimum = model.embedding_parameters + model.routed_parameters
    if model.parameters < minimum:
        yield ("parameters",), f"must be at least the embedding and the experts ({minimum}), got {model.parameters}"
    counted = (
        ("published", model.published, model.parameters),
        ("published_active", model.published_active, model.active_parameters),
    )
    for field, published, ours in counted:
        if published is not None and not published.admits(ours):
            expected = (
                f"must be within {published.rounded_to} of {ours + published.unlike_ours}, our count plus unlike_ours"
            )
            yield (field, "count"), f"{expected}, got {published.count}"
