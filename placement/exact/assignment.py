"""The assignment formulation: replica counts, and which GPU holds each copy.

docs/explanation/placement/exact.md has the symbols, and each constraint under the name it has here.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from placement.arrays import Floats, Ints
from placement.exact.program import Program, Terms, Variable, is_set


@dataclass(frozen=True, eq=False)
class Case:
    loads: Floats  # [experts]: parts of the layer's tokens, adding up to 1
    shares: Floats  # [GPUs]: parts of the total speed, adding up to 1
    slots_of_gpu: Ints
    max_copies: int  # of one expert
    ceiling: float  # only a lower imbalance is of interest

    @property
    def experts(self) -> int:
        return len(self.loads)

    @property
    def gpus(self) -> int:
        return len(self.shares)

    @cached_property
    def gpu_classes(self) -> list[list[int]]:
        """Interchangeable GPUs: equal speed and equal slots."""
        classes: dict[tuple[float, int], list[int]] = {}
        for gpu in range(self.gpus):
            classes.setdefault((float(self.shares[gpu]), int(self.slots_of_gpu[gpu])), []).append(gpu)
        return list(classes.values())


@dataclass(frozen=True, eq=False)
class AssignmentModel:
    """The program of one case; loads are multiples of a GPU's even share."""

    case: Case
    program: Program = field(default_factory=lambda: Program("assignment"))
    counts: dict[tuple[int, int], Variable] = field(default_factory=dict)  # y[e,c]
    places: dict[tuple[int, int, int], Variable] = field(default_factory=dict)  # x[e,c,g]

    @classmethod
    def of(cls, case: Case) -> "AssignmentModel":
        """The model with the variables that the ceiling leaves, and without constraints."""
        model = cls(case)
        for expert in range(case.experts):
            for count in range(1, case.max_copies + 1):
                model._add_variables(expert, count)
        return model

    @property
    def has_every_expert(self) -> bool:
        """Whether every expert stays under the ceiling with some number of copies."""
        return len({expert for expert, _ in self.counts}) == self.case.experts

    @cached_property
    def max_load(self) -> Variable:
        """T, the imbalance of the layer."""
        return self.program.continuous("max_load", upper=self.case.ceiling)

    def load(self, gpu: int) -> Iterator[tuple[Variable, float]]:
        """A GPU's load over its even share, as a sum of terms."""
        for expert, count in self.counts:
            if (expert, count, gpu) in self.places:
                yield self.places[expert, count, gpu], self._weight(expert, count, gpu)

    def copies_on(self, gpu: int, *, expert: int | None = None) -> Terms:
        """The copies on a GPU, of all experts or of one."""
        for each, count in self.counts:
            if expert in {None, each} and (each, count, gpu) in self.places:
                yield self.places[each, count, gpu], 1.0

    def found(self) -> Ints:
        """After a run: [slots], GPU by GPU."""
        held = np.zeros((self.case.gpus, self.case.experts), dtype=np.bool_)
        for (expert, _, gpu), place in self.places.items():
            held[gpu, expert] |= is_set(place)
        slots: Ints = np.nonzero(held)[1].astype(np.int64)
        return slots

    def _add_variables(self, expert: int, count: int) -> None:
        """A copy whose own load is above the ceiling gets no variable; nor does a count with too few places."""
        weights = [self._weight(expert, count, gpu) for gpu in range(self.case.gpus)]
        allowed = [gpu for gpu, weight in enumerate(weights) if weight <= self.case.ceiling]
        if len(allowed) < count:
            return
        self.counts[expert, count] = self.program.binary(f"count_{expert}_{count}")
        for gpu in allowed:
            self.places[expert, count, gpu] = self.program.binary(f"place_{expert}_{count}_{gpu}")

    def _weight(self, expert: int, count: int, gpu: int) -> float:
        return float(self.case.loads[expert] / count / self.case.shares[gpu])


def add_count(model: AssignmentModel) -> None:
    """count[e]: an expert has one number of copies."""
    for expert in range(model.case.experts):
        counts = [(y, 1.0) for (each, _), y in model.counts.items() if each == expert]
        model.program.equal(f"count_{expert}", counts, 1)


def add_copies(model: AssignmentModel) -> None:
    """copies[e,c]: as many places hold a copy as there are copies."""
    for (expert, count), y in model.counts.items():
        places = ((expert, count, gpu) for gpu in range(model.case.gpus))
        terms = [(model.places[place], 1.0) for place in places if place in model.places]
        model.program.equal(f"copies_{expert}_{count}", [*terms, (y, -float(count))], 0)


def add_held(model: AssignmentModel) -> None:
    """held[e,c,g]: a tighter form of `copies` for fractional counts; `copies` implies it for one copy."""
    for (expert, count, gpu), x in model.places.items():
        if count > 1:
            y = model.counts[expert, count]
            model.program.at_most(f"held_{expert}_{count}_{gpu}", [(x, 1.0), (y, -1.0)], 0)


def add_slots(model: AssignmentModel) -> None:
    """slots[g]: every slot is filled."""
    for gpu in range(model.case.gpus):
        model.program.equal(f"slots_{gpu}", model.copies_on(gpu), int(model.case.slots_of_gpu[gpu]))


def add_order(model: AssignmentModel) -> None:
    """order[e,g]: of interchangeable GPUs, those with the heaviest expert come first."""
    heaviest = int(np.argmax(model.case.loads))
    for gpus in model.case.gpu_classes:
        for one, other in itertools.pairwise(gpus):
            before = ((x, -1.0) for x, _ in model.copies_on(one, expert=heaviest))
            terms = [*model.copies_on(other, expert=heaviest), *before]
            model.program.at_most(f"order_{heaviest}_{one}", terms, 0)


def add_max_load(model: AssignmentModel) -> None:
    """max_load[g]: no GPU is above T."""
    for gpu in range(model.case.gpus):
        model.program.at_most(f"max_load_{gpu}", [*model.load(gpu), (model.max_load, -1.0)], 0)


def min_max_load(model: AssignmentModel) -> AssignmentModel:
    """The whole program: minimise T."""
    add_count(model)
    add_copies(model)
    add_held(model)
    add_slots(model)
    add_order(model)
    add_max_load(model)
    model.program.minimise([(model.max_load, 1.0)])
    return model
