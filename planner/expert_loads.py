"""Tokens per expert of a workload, as recorded by its engine."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from fleet.models import ModelArchitecture
from placement.arrays import MAX_EXPERTS, MAX_LAYERS
from placement.loads import ExpertLoads

MAX_WINDOWS = 1000
MAX_COUNTS = 2_000_000  # of all windows; a recording of a day in hours has a fifth of that

Tokens = Annotated[float, Field(ge=0, le=1e18)]
Window = Annotated[
    tuple[Annotated[tuple[Tokens, ...], Field(min_length=1, max_length=MAX_EXPERTS)], ...],
    Field(min_length=1, max_length=MAX_LAYERS),
]


class RecordedLoads(Frozen):
    """Tokens of each expert of each MoE layer, for one window of time or several."""

    tokens: Window | None = Field(default=None, description="[layers][experts]; dense layers are left out.")
    windows: Annotated[tuple[Window, ...], Field(min_length=1, max_length=MAX_WINDOWS)] | None = Field(
        default=None, description="[windows][layers][experts] instead, oldest first."
    )
    least_tokens: Tokens = Field(default=0.0, description="Minimum count of every expert.")

    @cached_property
    def counts(self) -> ExpertLoads:
        windows = self.windows if self.windows is not None else (self.tokens or (),)
        return ExpertLoads.of(np.array(windows, dtype=np.float64), least_tokens=self.least_tokens)

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if (self.tokens is None) == (self.windows is None):
            raise RuleError([((), "give either tokens or windows, and not both")])
        field = "tokens" if self.windows is None else "windows"
        RuleError.raise_for(_shape_violations(self.windows or (self.tokens or (),), field))
        try:
            _ = self.counts
        except RuleError as error:  # its paths start at the array `loads`
            raise RuleError((((field, *path[1:]), message) for path, message in error.violations)) from error
        return self


def model_violations(loads: RecordedLoads, model: ModelArchitecture) -> Iterator[Violation]:
    counts = loads.counts
    rows = counts.tokens.shape[1]
    if not model.moe_layers:
        yield (), f"must be left out: {model.name} has no experts"
    elif (rows, counts.experts) != (model.moe_layers, model.experts):
        expected = f"{model.moe_layers} layers of {model.experts} experts"
        yield (), f"must be of {expected}, as {model.name} has, got {rows} of {counts.experts}"


def _shape_violations(windows: Sequence[Window], field: str) -> Iterator[Violation]:
    layers, experts = len(windows[0]), len(windows[0][0])
    for number, window in enumerate(windows):
        at: tuple[str | int, ...] = (field,) if field == "tokens" else (field, number)
        if len(window) != layers:
            yield at, f"must have as many layers as the first window ({layers}), got {len(window)}"
        for row, tokens in enumerate(window):
            if len(tokens) != experts:
                yield (*at, row), f"must have as many experts as the first layer ({experts}), got {len(tokens)}"
    if (counts := len(windows) * layers * experts) > MAX_COUNTS:
        yield (field,), f"must hold at most {MAX_COUNTS:,} counts, got {counts:,}; add up windows"
