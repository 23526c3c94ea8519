"""The assessment of a placement on new loads as JSON, for the command line and the API.

Outside of `placement.drift`, which loads compiled code.
"""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError
from placement.arrays import MAX_LAYERS
from placement.document import Layer, Moves, Placement, Spread
from placement.layout import MAX_EXPERT_BYTES
from placement.loads import ExpertLoads
from placement.request import MAX_CEILING, Load, Window, ragged

MAX_WINDOWS = 1_000

Level = Annotated[float, Field(ge=1, le=MAX_CEILING)]


class DriftTerms(Frozen):
    """When to move copies, and what moving costs; the assessment checks them."""

    max_imbalance: Level = Field(default=1.05, description="Both levels below: mean over layers.")
    act_above: Level | None = Field(default=None, description="Nothing moves up to this mean.")
    settle_at: Level | None = Field(default=None, description="The mean that moves aim at.")
    under_way: bool = Field(default=False, description="Moves have begun: continue down to `settle_at`.")
    window_s: float = Field(default=3600.0, description="Duration of the assumed loads.")
    moe_share: float = Field(default=0.4, description="MoE layers' share of the step time now.")
    slowdown: float = Field(default=1.0, description="Share of throughput lost while copies move.")
    move_gb_per_s: float | None = Field(
        default=None, description="Bandwidth for moves, each way, per GPU; null: moves are free."
    )
    node_gb_per_s: float | None = Field(
        default=None, description="Bandwidth for moves, each way, per node; null: all its GPUs together."
    )
    expert_bytes: Annotated[int, Field(ge=1, le=MAX_EXPERT_BYTES)] | None = Field(
        default=None, description="Weights of one expert in one layer; null: those of the placement's model in FP8."
    )


class DriftRequest(DriftTerms):
    """A placement, and the loads to assess it on."""

    placement: Placement
    loads: Window | None = Field(default=None, description="[layers][experts]: tokens of each expert.")
    windows: Annotated[tuple[Window, ...], Field(min_length=1, max_length=MAX_WINDOWS)] | None = Field(
        default=None, description="[windows][layers][experts] instead, oldest first."
    )
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=MAX_LAYERS)] | None = Field(
        default=None, description="Number in the whole model of each row; null: those of the placement."
    )
    hidden_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] | None = None
    least_tokens: Load = Field(default=0.0, description="Count every expert with at least this many tokens.")

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        if (self.loads is None) == (self.windows is None):
            raise RuleError([(("loads",), "give either loads or windows")])
        RuleError.raise_for(ragged(self._windows, "loads" if self.windows is None else "windows"))
        return self

    def expert_loads(self) -> ExpertLoads:
        """Return the loads, with the layer numbers of the placement where they have none."""
        tokens = np.array(self._windows, dtype=np.float64)
        layers, hidden_layers = self.layers, self.hidden_layers
        found = ExpertLoads.of(tokens, layers=layers, hidden_layers=hidden_layers, least_tokens=self.least_tokens)
        return self.placement.same_rows(found)

    @property
    def _windows(self) -> tuple[Window, ...]:
        return self.windows if self.windows is not None else (self.loads or (),)


class Assessment(Frozen):
    """Whether to move copies, and why."""

    act: bool = Field(description="Whether to move copies now.")
    reason: str
    promised: float = Field(description="Mean imbalance on the loads of the placement.")
    imbalance: Spread = Field(description="On the new loads.")
    bound: Spread = Field(description="Lower bound for the new loads.")
    fresh: float = Field(description="Mean imbalance of a new placement for the new loads.")
    act_above: float
    settle_at: float = Field(description="The mean that moves aim at.")
    settled_at: float | None = Field(
        description="The level that counts as settled, as nothing better was found or pays; else null."
    )
    holds: bool = Field(description="Whether the mean is at most `act_above`.")
    moved_copies: int = Field(description="Copies to move to reach `settle_at`, or as near as moves come.")
    after_moves: float = Field(description="Mean imbalance after the moves.")
    gain_gpu_s: float = Field(description="GPU-seconds that the moves save over the window.")
    cost_gpu_s: float | None = Field(description="GPU-seconds that the moves take; null without a bandwidth.")
    moves: Moves | None = Field(description="The schedule of the moves; null without a bandwidth.")
    fresh_moved_copies: int = Field(description="Copies to move for a new placement.")
    expected: tuple[float, ...] = Field(
        default=(),
        description="Forecast mean imbalance of the next windows; needs several windows.",
    )
    act_in: int | None = Field(
        default=None, description="Windows until the mean is above `act_above`, 0 is now; null: not foreseen."
    )
