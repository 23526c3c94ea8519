"""`placement.json`: the slot of every copy, the loads it was planned for, and the predicted figures.

The document is enough for another evaluation, on its own loads or on others, and for every engine's file.
docs/explanation/placement/index.md describes the fields.
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
    """A figure per layer, with mean and maximum."""

    mean: float
    max: float
    per_layer: tuple[float, ...]

    @classmethod
    def of(cls, per_layer: Floats) -> "Spread":
        return cls(mean=float(per_layer.mean()), max=float(per_layer.max()), per_layer=tuple(per_layer.tolist()))


class RemoteNodes(Frozen):
    """Remote nodes per layer and their source."""

    source: Literal["trace", "modelled"]
    trace_tokens: int
    per_layer: tuple[float, ...]
    cost_per_token: float | None = Field(
        default=None, description="Remote nodes weighted by node_costs; null without costs."
    )


class Before(Frozen):
    """The placement before: the current one, or experts in order as engines start."""

    what: Literal["current", "contiguous"]
    imbalance: Spread
    remote_nodes_per_token: float | None = None
    cost_per_token: float | None = None


class EvenLoadSlots(Frozen):
    """The number of slots that would allow an even load."""

    slots: int
    bound_mean: float
    fp8_bytes_per_gpu: int | None = Field(
        default=None,
        description="Memory of the additional slots, with weights of one byte; null without a known model.",
    )


class Predictions(Frozen):
    """Further predictions."""

    imbalance_by_rule: dict[Dispatch, float] = Field(description="Mean over layers under each dispatch rule.")
    engine_imbalance: Spread | None = Field(
        default=None, description="Nearest dispatch only: with the choices that SGLang 0.5.23 draws for far GPUs."
    )
    before: Before
    redundancy: EvenLoadSlots | None = Field(default=None, description="Null where the bound is low enough.")


class Source(Frozen):
    """An input file."""

    format: str | None
    name: str | None = None
    sha256: str | None = None


class MoveBatch(Frozen):
    """Copies of one layer that move together."""

    layer: int = Field(description="Number of the layer in the whole model.")
    copies: int = Field(description="Copies from other GPUs; the others only change their slot.")
    start_s: float
    end_s: float
    imbalance: float = Field(description="Mean over all layers after the batch.")
    slots: tuple[int, ...] = Field(description="The slots that change; the map has their new experts.")
    sources: tuple[int, ...] = Field(description="The source GPU of each slot's copy.")
    beside: bool = Field(description="Whether GPUs need free memory for the new copies beside the serving ones.")


class Moves(Frozen):
    """The schedule of the moves, within the bandwidth that moves may use."""

    copies: int
    bytes: int
    duration_s: float
    expert_bytes: int = Field(description="Weights of one expert in one layer.")
    gpu_gb_per_s: float = Field(description="Bandwidth for moves, each way, per GPU.")
    node_gb_per_s: float = Field(description="Bandwidth for moves, each way, per node over all its uplinks.")
    batches: tuple[MoveBatch, ...] = Field(description="In order.")


class PlacementProvenance(Frozen):
    """The inputs and parameters of a placement."""

    version: str
    loads: tuple[Source, ...] = ()
    trace: Source | None = None
    current: Source | None = None
    windows: int = Field(ge=1, description="Number of load windows, added up.")
    least_tokens: float = Field(default=0.0, ge=0)
    max_imbalance: float | None = Field(default=None, description="The requested ceiling.")
    max_moves: int | None = None
    groups: int | None = None
    method: Method = Field(default=Method.SEARCH, description="The requested method.")
    time_limit_s: float | None = Field(
        default=None, description="Time limit of the integer programs; null for `search`."
    )
    seed: int = 0


class Placement(LayoutSchema):
    """A placement of all MoE layers."""

    schema_version: Literal[1] = SCHEMA_VERSION
    model: ModelName | None = None
    experts: Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
    layers: tuple[Layer, ...] = Field(min_length=1, description="Number in the whole model of each row.")
    hidden_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = Field(
        description="Layers of the model, dense ones included."
    )
    dispatch: Dispatch
    engine: DrawingEngine | None = Field(
        default=None, description="Planned and evaluated with the draws of this engine."
    )
    method: Method = Field(default=Method.SEARCH, description="`exact` where an integer program continued the search.")
    imbalance: Spread
    bound: Spread
    gap: float | None = Field(
        default=None, description="(mean - bound) / mean of the imbalance: the maximum distance from the optimum."
    )
    holds: bool = Field(description="False where the placement misses the requested ceiling.")
    remote_nodes_per_token: float | None = Field(description="Mean over layers; null without a trace.")
    remote_nodes: RemoteNodes | None = None
    moved_copies: int | None = Field(
        description="Copies on GPUs that did not hold the expert before; null without a current placement."
    )
    moves: Moves | None = Field(default=None, description="The schedule of the moves; null without `move_gb_per_s`.")
    solve_s: Annotated[float, Field(ge=0)]
    predictions: Predictions
    provenance: PlacementProvenance
    physical_to_logical_map: tuple[tuple[int, ...], ...] = Field(description="[layers][slots]: MoE layers only.")
    loads: TokensPerExpert = Field(description="[layers][experts]: tokens that the placement was planned for.")

    @cached_property
    def expert_of_slot(self) -> Ints:
        """[layers, slots]."""
        return np.array(self.physical_to_logical_map, dtype=np.int64)

    @cached_property
    def expert_loads(self) -> ExpertLoads:
        return ExpertLoads.of(self.loads, layers=self.layers, hidden_layers=self.hidden_layers)

    def same_rows(self, loads: ExpertLoads) -> ExpertLoads:
        """Loads whose rows have no layer numbers get those of this placement."""
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
        return self.model_dump(mode="json", exclude={"physical_to_logical_map", "loads"})


def placement_text(placement: Placement) -> str:
    """The document with one layer per line, for a readable diff."""
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
