"""The variables of the assignment programs (docs/placement/exact.md, section 7).

Two programs for one question.  `ProductModel` is MoETuner's: which cluster lies on which GPU, and which pairs of that
come together.  `OrderModel`, for few GPUs, chooses a whole order of the clusters per layer, so that the time from one
layer to the next is a number beforehand.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations, product
from typing import Protocol

import numpy as np

from placement.arrays import Floats, Ints
from placement.exact.exchange import Exchange, tail_s
from placement.exact.program import Program, Terms, Variable, is_set


class AssignmentModel(Protocol):
    """Either of the two."""

    @property
    def exchange(self) -> Exchange:
        """What it decides on."""
        ...

    @property
    def ceiling_s(self) -> float | None:
        """Only what is better is looked for."""
        ...

    @property
    def program(self) -> Program:
        """In units of `Exchange.unit_s`."""
        ...

    def on(self, layer: int, gpu: int) -> Terms:
        """Copies that lie on a GPU in a layer."""
        ...

    def first(self) -> Iterator[Variable]:
        """What is chosen when the first layer's clusters lie as they are numbered."""
        ...

    def goal(self) -> Terms:
        """The sum of the tails."""
        ...

    def found(self) -> Ints:
        """After a run: [layers, clusters], the GPU of each."""
        ...


@dataclass(frozen=True, eq=False)
class ProductModel:
    """MoETuner's program."""

    exchange: Exchange
    ceiling_s: float | None = None
    program: Program = field(default_factory=lambda: Program("assignment"))
    placed: dict[tuple[int, int, int], Variable] = field(default_factory=dict)  # y[l,c,g]
    pairs: dict[tuple[int, int, int, int, int], Variable] = field(default_factory=dict)  # p[l,c,d,g,h]
    tails: dict[int, Variable] = field(default_factory=dict)  # M[l]

    @classmethod
    def of(cls, exchange: Exchange, *, ceiling_s: float | None = None) -> "ProductModel":
        """Without rows yet."""
        model, every = cls(exchange, ceiling_s), range(exchange.clusters)
        for layer, cluster, gpu in product(range(exchange.layers), every, every):
            model.placed[layer, cluster, gpu] = model.program.choice(f"placed_{layer}_{cluster}_{gpu}")
        for step in range(exchange.layers - 1):
            model.tails[step] = model.program.number(f"tail_of_{step}")
            for c, d, g, h in product(every, repeat=4):
                model.pairs[step, c, d, g, h] = model.program.number(f"pair_{step}_{c}_{d}_{g}_{h}", most=1)
        return model

    def sent(self, step: int, gpu: int, other: int) -> Iterator[tuple[Variable, float]]:
        """The time from one GPU to another after a layer, as a sum of terms."""
        for c, d in product(range(self.exchange.clusters), repeat=2):
            time_s = float(self.exchange.times_s[step, c, d, gpu, other])
            yield self.pairs[step, c, d, gpu, other], time_s / self.exchange.unit_s

    def on(self, layer: int, gpu: int) -> Terms:
        """Copies that lie on a GPU in a layer."""
        for cluster, size in enumerate(self.exchange.sizes[layer]):
            yield self.placed[layer, cluster, gpu], float(size)

    def first(self) -> Iterator[Variable]:
        """What is chosen when the first layer's clusters lie as they are numbered."""
        return (self.placed[0, cluster, cluster] for cluster in range(self.exchange.clusters))

    def goal(self) -> Terms:
        """The sum of the tails."""
        return ((tail, 1.0) for tail in self.tails.values())

    def found(self) -> Ints:
        """After a run: [layers, clusters], the GPU of each."""
        gpus = np.zeros((self.exchange.layers, self.exchange.clusters), dtype=np.int64)
        for (layer, cluster, gpu), choice in self.placed.items():
            if is_set(choice):
                gpus[layer, cluster] = gpu
        return gpus


@dataclass(frozen=True, eq=False)
class OrderModel:
    """A path through the orders of each layer."""

    exchange: Exchange
    ceiling_s: float | None = None
    program: Program = field(default_factory=lambda: Program("assignment"))
    chosen: dict[tuple[int, int], Variable] = field(default_factory=dict)  # v[l,i]
    moves: dict[tuple[int, int, int], Variable] = field(default_factory=dict)  # z[l,i,j]

    @classmethod
    def of(cls, exchange: Exchange, *, ceiling_s: float | None = None) -> "OrderModel":
        """Without rows yet."""
        model = cls(exchange, ceiling_s)
        every = range(len(model.orders))
        for layer, order in product(range(exchange.layers), every):
            model.chosen[layer, order] = model.program.choice(f"chosen_{layer}_{order}")
        for step, here, there in product(range(exchange.layers - 1), every, every):
            model.moves[step, here, there] = model.program.number(f"move_{step}_{here}_{there}")
        return model

    @cached_property
    def orders(self) -> Ints:
        """[orders, clusters]: the GPU of each cluster; the first has them as they are numbered."""
        return np.array(list(permutations(range(self.exchange.clusters))), dtype=np.int64)

    @cached_property
    def times(self) -> Floats:
        """[layers - 1, orders, orders]: the tail between each two, in units of the longest time of any pair."""
        steps = range(self.exchange.layers - 1)
        tails = [
            [[tail_s(self.exchange, step, here, there) for there in self.orders] for here in self.orders]
            for step in steps
        ]
        return np.array(tails).reshape(len(steps), len(self.orders), len(self.orders)) / self.exchange.unit_s

    def on(self, layer: int, gpu: int) -> Terms:
        """Copies that lie on a GPU in a layer."""
        for order, gpus in enumerate(self.orders):
            yield self.chosen[layer, order], float(self.exchange.sizes[layer][gpus == gpu].sum())

    def first(self) -> Iterator[Variable]:
        """What is chosen when the first layer's clusters lie as they are numbered."""
        yield self.chosen[0, 0]

    def goal(self) -> Terms:
        """The sum of the tails."""
        return ((move, float(self.times[key])) for key, move in self.moves.items())

    def found(self) -> Ints:
        """After a run: [layers, clusters], the GPU of each."""
        rows = np.zeros((self.exchange.layers, self.exchange.clusters), dtype=np.int64)
        for (layer, order), choice in self.chosen.items():
            if is_set(choice):
                rows[layer] = self.orders[order]
        return rows
