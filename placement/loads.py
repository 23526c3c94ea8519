"""The tokens that each expert received, per layer, over one or more time windows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError, Violation
from placement.arrays import MAX_EXPERTS, MAX_LAYERS, Flags, Floats


@dataclass(frozen=True, eq=False)
class ExpertLoads:
    """Tokens per window, MoE layer and expert.  Create with `of`, which checks the values.

    An expert without tokens is refused, because a short recording may have missed it.  `least_tokens` gives a count
    to such experts.
    """

    tokens: Floats  # [windows, layers, experts], oldest window first
    layers: tuple[int, ...]  # each row's number in the whole model, dense layers included
    hidden_layers: int  # of the whole model

    @classmethod
    def of(
        cls,
        tokens: npt.ArrayLike,
        *,
        layers: tuple[int, ...] | None = None,
        hidden_layers: int | None = None,
        least_tokens: float = 0.0,
    ) -> "ExpertLoads":
        """From [windows x] layers x experts; without numbers all layers are MoE layers."""
        counts = np.array(tokens, dtype=np.float64)
        if counts.ndim == 2:
            counts = counts[np.newaxis]
        RuleError.raise_for(_shape_violations(counts))
        rows = tuple(range(counts.shape[1])) if layers is None else layers
        RuleError.raise_for(_number_violations(counts))
        if least_tokens > 0:
            counts = np.maximum(counts, least_tokens / len(counts))
        loads = cls(counts, rows, rows[-1] + 1 if hidden_layers is None else hidden_layers)
        RuleError.raise_for(_violations(loads))
        return loads

    @property
    def experts(self) -> int:
        return int(self.tokens.shape[2])

    @property
    def windows(self) -> int:
        return int(self.tokens.shape[0])

    @cached_property
    def total(self) -> Floats:
        """[layers, experts]: the sum over windows."""
        return np.ascontiguousarray(self.tokens.sum(axis=0))


def _shape_violations(counts: npt.NDArray[np.float64]) -> Iterator[Violation]:
    if counts.ndim != 3:
        yield ("loads",), f"must have 2 or 3 dimensions ([windows x] layers x experts), got {counts.ndim}"
        return
    windows, layers, experts = counts.shape
    if windows < 1:
        yield ("loads",), "must hold at least one window"
    if not 1 <= layers <= MAX_LAYERS:
        yield ("loads",), f"must hold from 1 to {MAX_LAYERS} layers, got {layers}"
    if not 1 <= experts <= MAX_EXPERTS:
        yield ("loads",), f"must hold from 1 to {MAX_EXPERTS} experts per layer, got {experts}"


def _number_violations(counts: Floats) -> Iterator[Violation]:
    if not np.isfinite(counts).all():
        yield _place(counts, ~np.isfinite(counts)), "must be a finite number"
    elif (counts < 0).any():
        yield _place(counts, counts < 0), f"must be above 0, got {counts[counts < 0][0]:g}"


def _violations(loads: ExpertLoads) -> Iterator[Violation]:
    rows = loads.tokens.shape[1]
    yield from layer_violations(loads.layers, loads.hidden_layers, rows=rows)
    if len(loads.layers) != rows:
        return
    silent = loads.total == 0
    if silent.all(axis=1).any():
        row = int(np.argmax(silent.all(axis=1)))
        yield ("loads", row), "must be above 0, got a layer without any load; leave dense layers out"
    elif silent.any():
        row, expert = (int(place) for place in np.argwhere(silent)[0])
        yield (
            ("loads", row, expert),
            f"must be above 0, as for all experts; {int(silent.sum())} have no load (`least_tokens` gives them some)",
        )


def layer_violations(layers: tuple[int, ...], hidden_layers: int, *, rows: int) -> Iterator[Violation]:
    """Of the rows' numbers in the whole model."""
    if len(layers) != rows:
        yield ("layers",), f"must be one number per row ({rows}), got {len(layers)}"
    elif list(layers) != sorted(set(layers)) or layers[0] < 0:
        yield ("layers",), "must rise from row to row and start at 0 or above"
    elif not layers[-1] < hidden_layers <= MAX_LAYERS:
        yield ("hidden_layers",), f"must be from {layers[-1] + 1} to {MAX_LAYERS}, got {hidden_layers}"


def _place(counts: Floats, wrong: Flags) -> tuple[str | int, ...]:
    window, row, expert = (int(place) for place in np.argwhere(wrong)[0])
    return ("loads", row, expert) if len(counts) == 1 else ("loads", window, row, expert)
