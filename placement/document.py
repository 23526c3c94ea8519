"""`placement.json`: where every copy lies, the loads that this was decided for, and what was promised of it.

It holds enough to be judged again, on its own loads or on others, and to be written for any engine.  Field by field it
is described in docs/placement/index.md.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, StringConstraints, model_validator

from fleet.documents import Frozen, RuleError, Violation
from placement.arrays import MAX_EXPERTS, MAX_LAYERS, Floats, Ints
from placement.layout_schema import LayoutSchema
from placement.loads import ExpertLoads
from placement.options import Dispatch, DrawingEngine, Method
from placement.validation import check_capacity, check_slots

SCHEMA_VERSION: Literal[1] = 1

Tokens = Annotated[float, Field(gt=0)]
Layer = Annotated[int, Field(ge=0, lt=MAX_LAYERS)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
TokensPerExpert = tuple[Annotated[tuple[Tokens, ...], Field(max_length=MAX_EXPERTS)], ...]


class Spread(Frozen):
    """A figure of every layer."""

    mean: float
    max: float
    per_layer: tuple[float, ...]

    @classmethod
    def of(cls, per_layer: Floats) -> "Spread":
        """Of an array [layers]."""
        return cls(mean=float(per_layer.mean()), max=float(per_layer.max()), per_layer=tuple(per_layer.tolist()))


class RemoteNodes(Frozen):
    """Where the figure of remote nodes comes from."""

    source: Literal["trace", "modelled"]
    trace_tokens: int
    per_layer: tuple[float, ...]
    cost_per_token: float | None = Field(
        default=None, description="The same by node_costs, a way at cost 1 counting 1; null without costs."
    )


class Before(Frozen):
    """What the placement replaces: the one now loaded, or experts in their order as engines start."""

    what: Literal["current", "contiguous"]
    imbalance: Spread
    remote_nodes_per_token: float | None = None
    cost_per_token: float | None = None


class Redundancy(Frozen):
    """How many slots would let the loads lie evenly, where they cannot now."""

    slots: int
    bound_mean: float
    fp8_bytes_per_gpu: int | None = Field(
        default=None, description="Memory for the slots added, with weights of one byte; null without a known model."
    )


class Predictions(Frozen):
    """What to expect of it, beside the figures at the top."""

    imbalance_by_rule: dict[Dispatch, float] = Field(description="Mean over layers, had the engine this rule or that.")
    engine_imbalance: Spread | None = Field(
        default=None, description="Nearest dispatch only: with the very choices that SGLang 0.5.23 draws for far GPUs."
    )
    before: Before
    redundancy: Redundancy | None = Field(default=None, description="Null where the bound is good as it is.")


class Source(Frozen):
    """A file that was read."""

    format: str | None
    name: str | None = None
    sha256: str | None = None


class MoveBatch(Frozen):
    """Copies of one layer that travel together, and are put in at the end."""

    layer: int = Field(description="Its number in the whole model.")
    copies: int = Field(description="That come from other GPUs; the rest only change slot.")
    start_s: float
    end_s: float
    imbalance: float = Field(description="Mean over all layers, once they are in.")
    slots: tuple[int, ...] = Field(description="That change; what they hold then is in the map.")
    sources: tuple[int, ...] = Field(description="The GPU that each slot's copy comes from.")
    beside: bool = Field(description="Whether GPUs need room for them beside what they serve until all are there.")


class Moves(Frozen):
    """When each copy moves, and how long that takes, within what links may carry of it."""

    copies: int
    bytes: int
    duration_s: float
    expert_bytes: int = Field(description="Weights of one expert in one layer.")
    gpu_gb_per_s: float = Field(description="What moves may send, and what receive, per GPU.")
    node_gb_per_s: float = Field(description="The same per node, over all its uplinks.")
    batches: tuple[MoveBatch, ...] = Field(description="One after another.")


class Provenance(Frozen):
    """What it was made from, and how: the same again gives the same placement."""

    version: str
    loads: tuple[Source, ...] = ()
    trace: Source | None = None
    current: Source | None = None
    windows: int = Field(ge=1, description="How many windows of loads were added up.")
    least_tokens: float = Field(default=0.0, ge=0)
    max_imbalance: float | None = Field(default=None, description="The ceiling asked for.")
    max_moves: int | None = None
    groups: int | None = None
    method: Method = Field(default=Method.SEARCH, description="The requested method.")
    time_limit_s: float | None = Field(default=None, description="Of the integer programs; null for `search`.")
    seed: int = 0


class Placement(LayoutSchema):
    """One placement of all MoE layers."""

    schema_version: Literal[1] = SCHEMA_VERSION
    model: ModelName | None = None
    experts: Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
    layers: tuple[Layer, ...] = Field(min_length=1, description="Number in the whole model of each row below.")
    hidden_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = Field(description="Dense layers counted.")
    dispatch: Dispatch
    engine: DrawingEngine | None = Field(
        default=None, description="Planned for this engine's own draws, and judged so."
    )
    method: Method = Field(default=Method.SEARCH, description="`exact` where an integer program continued the search.")
    imbalance: Spread
    bound: Spread
    gap: float | None = Field(
        default=None, description="(mean - bound) / mean of the imbalance: the maximum distance from the optimum."
    )
    holds: bool = Field(description="False where the ceiling asked for was not reached.")
    remote_nodes_per_token: float | None = Field(description="Mean over layers; null without a trace.")
    remote_nodes: RemoteNodes | None = None
    moved_copies: int | None = Field(description="Copies to load where they are not now; null without a current one.")
    moves: Moves | None = Field(default=None, description="When they move; null without `move_gb_per_s`.")
    solve_s: Annotated[float, Field(ge=0)]
    predictions: Predictions
    provenance: Provenance
    physical_to_logical_map: tuple[tuple[int, ...], ...] = Field(description="[layers][slots]: MoE layers only.")
    loads: TokensPerExpert = Field(description="[layers][experts]: tokens it was made for.")

    @cached_property
    def expert_of_slot(self) -> Ints:
        """[layers, slots]."""
        return np.array(self.physical_to_logical_map, dtype=np.int64)

    @cached_property
    def expert_loads(self) -> ExpertLoads:
        """The loads it was made for."""
        return ExpertLoads.of(self.loads, layers=self.layers, hidden_layers=self.hidden_layers)

    def same_rows(self, loads: ExpertLoads) -> ExpertLoads:
        """Loads that say nothing of their rows but that they are MoE layers, under the numbers used here."""
        bare = loads.hidden_layers == len(loads.layers) == len(self.layers)
        return replace(loads, layers=self.layers, hidden_layers=self.hidden_layers) if bare else loads

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        RuleError.raise_for(_violations(self))
        if self.expert_loads.experts != self.experts:
            RuleError.raise_for([(("experts",), f"must be as in the loads ({self.expert_loads.experts})")])
        check_capacity(experts=self.experts, layout=self.layout)
        check_slots(self.expert_of_slot, experts=self.experts, layout=self.layout)
        return self

    def summary(self) -> dict[str, Any]:
        """All but what is as large as the model."""
        return self.model_dump(mode="json", exclude={"physical_to_logical_map", "loads"})


def placement_text(placement: Placement) -> str:
    """The document, a layer a line, so that two versions of it can be compared."""
    values = {"schema_version": placement.schema_version} | placement.model_dump(mode="json")
    fields = (f"{json.dumps(name)}: {_value_text(value)}" for name, value in values.items())
    return "{\n  " + ",\n  ".join(fields) + "\n}\n"


def _value_text(value: Any) -> str:
    if not (isinstance(value, list) and value and isinstance(value[0], list)):
        return json.dumps(value)
    return "[\n    " + ",\n    ".join(json.dumps(row, separators=(",", ":")) for row in value) + "\n  ]"


def _violations(placement: Placement) -> Iterator[Violation]:
    rows = len(placement.layers)
    for name in ("physical_to_logical_map", "loads"):
        if len(found := getattr(placement, name)) != rows:
            yield (name,), f"must have one row per layer ({rows}), got {len(found)}"
        elif len({len(row) for row in found}) > 1:
            yield (name,), "must have rows of one length"
    for name in ("imbalance", "bound"):
        if len(found := getattr(placement, name).per_layer) != rows:
            yield (name, "per_layer"), f"must have one number per layer ({rows}), got {len(found)}"
