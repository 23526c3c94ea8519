"""The experts of many single tokens, per layer: the input for traffic between nodes.

Loads contain how many tokens an expert received.  Only a trace contains which experts a token used together, and so how
many nodes it reaches.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError, Violation
from placement.arrays import MAX_EXPERTS, MAX_LAYERS, Experts, Floats

MAX_ACTIVE = 64  # experts of one token in one layer


@dataclass(frozen=True, eq=False)
class TokenTrace:
    """Experts of each token.  Create with `of`, which checks the values."""

    experts: Experts  # [tokens, layers, k], distinct within a token and layer
    experts_per_layer: int

    @classmethod
    def of(cls, experts: npt.ArrayLike, *, experts_per_layer: int) -> "TokenTrace":
        """From [tokens, layers, k], whole numbers below the number of experts."""
        given = np.asarray(experts)
        RuleError.raise_for(_shape_violations(given, experts_per_layer))
        RuleError.raise_for(_number_violations(given, experts_per_layer))
        numbers = np.array(given, dtype=np.int16, order="C")
        RuleError.raise_for(_repeat_violations(numbers))
        return cls(numbers, experts_per_layer)

    @property
    def tokens(self) -> int:
        return int(self.experts.shape[0])

    @property
    def layers(self) -> int:
        return int(self.experts.shape[1])

    @property
    def active(self) -> int:
        return int(self.experts.shape[2])

    def loads(self) -> Floats:
        """[layers, experts]: tokens of each expert."""
        rows = np.arange(self.layers)[:, np.newaxis] * self.experts_per_layer
        places = (self.experts.astype(np.int64) + rows).ravel()
        counts = np.bincount(places, minlength=self.layers * self.experts_per_layer)
        return counts.reshape(self.layers, self.experts_per_layer).astype(np.float64)

    def part(self, first: int, last: int) -> "TokenTrace":
        """The tokens from `first` up to `last`, to plan on some and evaluate on others."""
        RuleError.raise_for(_part_violations(first, last, self.tokens))
        return TokenTrace(np.ascontiguousarray(self.experts[first:last]), self.experts_per_layer)


def _shape_violations(given: npt.NDArray[np.generic], experts: int) -> Iterator[Violation]:
    if not 1 <= experts <= MAX_EXPERTS:
        yield ("experts",), f"must be from 1 to {MAX_EXPERTS}, got {experts}"
    if given.ndim != 3:
        yield ("trace",), f"must have 3 dimensions (tokens x layers x experts of a token), got {given.ndim}"
        return
    tokens, layers, active = given.shape
    if tokens < 1:
        yield ("trace",), "must hold at least one token"
    if not 1 <= layers <= MAX_LAYERS:
        yield ("trace",), f"must hold from 1 to {MAX_LAYERS} layers, got {layers}"
    if not 1 <= active <= min(MAX_ACTIVE, experts):
        yield ("trace",), f"must hold from 1 to {min(MAX_ACTIVE, experts)} experts of a token, got {active}"
    if given.dtype.kind not in "iuf":
        yield ("trace",), f"must hold numbers, got {given.dtype}"


def _number_violations(given: npt.NDArray[np.generic], experts: int) -> Iterator[Violation]:
    numbers = given.astype(np.float64) if given.dtype.kind == "f" else given.astype(np.int64)
    wrong = ~((numbers >= 0) & (numbers < experts))
    if given.dtype.kind == "f":
        wrong |= numbers != np.floor(numbers)
    if wrong.any():
        place = tuple(int(at) for at in np.argwhere(wrong)[0])
        yield ("trace", *place), f"must be a whole number from 0 to {experts - 1}, got {given[place]}"


def _repeat_violations(numbers: Experts) -> Iterator[Violation]:
    ordered = np.sort(numbers, axis=2)
    repeated = (ordered[:, :, 1:] == ordered[:, :, :-1]).any(axis=2)
    if repeated.any():
        token, layer = (int(at) for at in np.argwhere(repeated)[0])
        yield ("trace", token, layer), "must not name an expert twice for one token"


def _part_violations(first: int, last: int, tokens: int) -> Iterator[Violation]:
    if not 0 <= first < last <= tokens:
        yield ("tokens",), f"must be a range within 0 to {tokens}, got {first} to {last}"
