"""The variables of the balance programs: how many copies an expert has, and where they lie.

docs/placement/exact.md, sections 1 and 2.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from placement.arrays import Floats, Ints
from placement.exact.exchange import Held
from placement.exact.program import Program, Terms, Variable, is_set


class Objective(StrEnum):
    """What is made small, in the mean over layers."""

    PEAK = "peak"  # the busiest GPU over its even share
    DEVIATION = "deviation"  # MoETuner's: how far GPUs are from their even share, taken together


@dataclass(frozen=True, eq=False)
class Case:
    """Layers to be placed by one program."""

    parts: Floats  # [layers, experts]: of each layer's tokens, adding up to 1
    shares: Floats  # [GPUs]: of all speed, adding up to 1
    most_copies: int  # of one expert in one layer
    slots_of_gpu: Ints | None = None  # in every layer; None: as many as it likes, one at least
    copies_of_gpu: Ints | None = None  # over all layers together, at most; None: no limit
    copies: int | None = None  # in all of a layer, where the slots do not say
    ceiling: float | None = None  # only what is better than this is looked for

    @property
    def layers(self) -> int:
        """How many."""
        return int(self.parts.shape[0])

    @property
    def experts(self) -> int:
        """Of one layer."""
        return int(self.parts.shape[1])

    @property
    def gpus(self) -> int:
        """How many."""
        return len(self.shares)

    @cached_property
    def alike(self) -> list[list[int]]:
        """GPUs that may be exchanged for one another."""
        kinds: dict[tuple[float, ...], list[int]] = {}
        for gpu in range(self.gpus):
            room = [-1.0 if limit is None else float(limit[gpu]) for limit in (self.slots_of_gpu, self.copies_of_gpu)]
            kinds.setdefault((float(self.shares[gpu]), *room), []).append(gpu)
        return list(kinds.values())


@dataclass(frozen=True, eq=False)
class BalanceModel:
    """One program over a case; loads are multiples of an even GPU's."""

    case: Case
    program: Program = field(default_factory=lambda: Program("balance"))
    counts: dict[tuple[int, int, int], Variable] = field(default_factory=dict)  # y[l,e,c]
    places: dict[tuple[int, int, int, int], Variable] = field(default_factory=dict)  # x[l,e,c,g]
    peaks: dict[int, Variable] = field(default_factory=dict)  # T[l]
    apart: dict[tuple[int, int], Variable] = field(default_factory=dict)  # d[l,g]

    @classmethod
    def of(cls, case: Case) -> "BalanceModel":
        """With the choices that the ceiling leaves, and no rows yet."""
        model = cls(case)
        for layer in range(case.layers):
            for expert in range(case.experts):
                for count in range(1, case.most_copies + 1):
                    model._add_choices(layer, expert, count)
        return model

    def load(self, layer: int, gpu: int) -> Iterator[tuple[Variable, float]]:
        """A GPU's load over its even share, as a sum of terms."""
        for expert, count in self.copies_in[layer]:
            if (layer, expert, count, gpu) in self.places:
                yield self.places[layer, expert, count, gpu], self._weight(layer, expert, count, gpu)

    def on(self, layer: int, gpu: int, *, expert: int | None = None) -> Terms:
        """The copies of a layer, or of one of its experts, on a GPU."""
        for at, count in self.copies_in[layer]:
            if expert in {None, at} and (layer, at, count, gpu) in self.places:
                yield self.places[layer, at, count, gpu], 1.0

    @cached_property
    def copies_in(self) -> dict[int, list[tuple[int, int]]]:
        """Layer -> each expert with each number of copies that it may have."""
        found: dict[int, list[tuple[int, int]]] = {layer: [] for layer in range(self.case.layers)}
        for layer, expert, count in self.counts:
            found[layer].append((expert, count))
        return found

    def found(self) -> Held:
        """After a run: [layers, experts, GPUs], where a copy lies."""
        held = np.zeros((self.case.layers, self.case.experts, self.case.gpus), dtype=np.bool_)
        for (layer, expert, _, gpu), place in self.places.items():
            held[layer, expert, gpu] |= is_set(place)
        return held

    def _add_choices(self, layer: int, expert: int, count: int) -> None:
        """A copy that would alone be above the ceiling has no place; too few places are none."""
        name = f"{layer}_{expert}_{count}"
        weights = [self._weight(layer, expert, count, gpu) for gpu in range(self.case.gpus)]
        most = np.inf if self.case.ceiling is None else self.case.ceiling
        room = [gpu for gpu, weight in enumerate(weights) if weight <= most]
        if len(room) < count:
            return
        self.counts[layer, expert, count] = self.program.choice(f"copies_{name}")
        for gpu in room:
            self.places[layer, expert, count, gpu] = self.program.choice(f"place_{name}_{gpu}")

    def _weight(self, layer: int, expert: int, count: int, gpu: int) -> float:
        return float(self.case.parts[layer, expert] / count / self.case.shares[gpu])
