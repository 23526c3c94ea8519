"""The content of a file with counts or routed tokens, before the check as loads or as a trace.

An engine that records all layers of a model has rows for its dense layers too, where no token chose an expert.  These
rows are left out, and the others keep their numbers in the whole model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError, Violation, dotted
from fleet.errors import DocumentError, Problem
from placement.arrays import MAX_EXPERTS, MAX_LAYERS, Floats
from placement.formats.arrays import Numbers


@dataclass(frozen=True, eq=False)
class Counts:
    """Tokens per window, layer and expert."""

    tokens: Floats  # [windows, layers, experts]
    layers: tuple[int, ...] | None = None  # numbers in the whole model, where the file has them
    hidden_layers: int | None = None  # of the whole model, where the file has it
    of_one_rank: bool = False  # whether each rank counted other tokens; else every rank's file has the same counts


@dataclass(frozen=True, eq=False)
class Routed:
    """The experts of each token: [tokens, layers, k], whole numbers, none below 0."""

    experts: Numbers
    layers: tuple[int, ...] | None = None
    hidden_layers: int | None = None
    known_experts: int | None = None  # per layer, where the file has it

    def experts_per_layer(self, given: int | None) -> int:
        """As given, or as in the file, or up to the highest number of any token in any layer."""
        return given or self.known_experts or int(self.experts.max(initial=0)) + 1


Source = Counts | Routed


@contextmanager
def of_file(name: str) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except RuleError as error:
        problems = [Problem(dotted(path), message) for path, message in error.violations]
        raise DocumentError(name=name, problems=problems) from error


def of_whole_model(tokens: Floats, *, field: str, of_one_rank: bool = False) -> Counts:
    """Counts [windows, layers, experts] with a row for every layer of the model, dense ones being all zero."""
    RuleError.raise_for(_violations(tokens, field))
    routed = tokens.sum(axis=(0, 2)) > 0
    layers = tuple(int(layer) for layer in np.flatnonzero(routed))
    return Counts(tokens[:, routed], layers, len(routed), of_one_rank)


def routed_of_whole_model(experts: Numbers, *, known_experts: int | None = None) -> Routed:
    """Routing [tokens, layers, k] with every layer of the model; a dense layer repeats one number for every token."""
    if experts.ndim != 3 or not experts.size:
        raise RuleError([(("trace",), f"must be tokens x layers x experts of a token, got shape {experts.shape}")])
    dense = (experts == experts[:1, :, :1]).all(axis=(0, 2)) & (experts[0, :, 0] <= 0)
    if dense.all():
        raise RuleError([(("trace",), "must hold a layer that chooses experts, all are dense")])
    layers = tuple(int(layer) for layer in np.flatnonzero(~dense))
    computed = experts.any(axis=(1, 2))  # a token from the prefix cache stays zero
    kept = np.ascontiguousarray(experts[computed][:, ~dense])
    return Routed(kept, layers, len(dense), known_experts)


def _violations(tokens: Floats, field: str) -> Iterator[Violation]:
    if tokens.ndim != 3 or not tokens.size:
        yield (field,), f"must be [steps x] layers x experts, got shape {tokens.shape}"
    elif tokens.shape[1] > MAX_LAYERS or tokens.shape[2] > MAX_EXPERTS:
        yield (field,), f"must be at most {MAX_LAYERS} layers x {MAX_EXPERTS} experts, got {tokens.shape[1:]}"
    elif not ((tokens >= 0) & (tokens < np.inf)).all():
        place = tuple(int(at) for at in np.argwhere(~((tokens >= 0) & (tokens < np.inf)))[0])
        yield (field, *place), f"must be a finite number from 0 up, got {tokens[place]:g}"
    elif not tokens.any():
        yield (field,), "must be above 0 somewhere: nothing was recorded"
