"""The fewest moved copies that bring the mean imbalance over layers under a ceiling.

Each layer offers the most even placement found for each number of moves, and the relabelled full plan.  `knapsack`
selects one offer of each layer with the fewest moves in total.  The selection gives the imbalance that each layer must
reach; a second, wider search aims at it.

EPLB makes placements with an expert twice on one GPU, and engines load them; the second copy is wasted.  Each such slot
first takes the expert that makes the layer's loads most even, by the sum of the GPUs' squared times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Experts, Floats, Ints
from placement.dispatch import RULES, Dispatch, gpu_loads
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration.knapsack import SLACK, Options, choose
from placement.migration.moves import in_kept_slots, moved_per_layer, relabelled
from placement.validation import check_slots

WIDTH = 12  # states kept per level
DEEP = 0.35  # of the ceiling's distance from 1: the first target of all layers, some making up for others
NEAR = 0.002  # above the imbalance of a full plan: no layer is searched deeper
AIM = 0.35  # of the distance of a layer's selected imbalance from 1: the target of the wider search
BEYOND = 1  # levels searched beyond the selected moves
LADDER = (0.75, 0.5, 0.25, 0.0)  # targets for few moves: between the ceiling, 0, and the present imbalance, 1
MAX_LEVELS = 96


@dataclass(frozen=True, eq=False)
class _SearchInput:
    current: Ints
    start: Ints  # `current` without duplicates
    tokens: Floats
    layout: Layout
    rule: Dispatch

    def frontiers(self, *, targets: Floats, depths: Ints, width: int) -> tuple[Floats, Experts]:
        """Per layer and number of moves below its depth: imbalance [layers, levels], and the placements."""
        from placement.migration.search import frontiers  # noqa: PLC0415 - compiles on import

        keys = np.random.default_rng(0).integers(1, 2**62, size=(self.layout.gpus, self.tokens.shape[1]))
        return frontiers(
            np.ascontiguousarray(self.current, dtype=np.int16),
            np.ascontiguousarray(self.start, dtype=np.int16),
            np.ascontiguousarray(self.tokens, dtype=np.float64),
            np.ascontiguousarray(1.0 / (self.tokens.sum(axis=1, keepdims=True) * self.layout.shares)),
            self.layout.arrays,
            keys,
            RULES[self.rule],
            np.ascontiguousarray(targets),
            np.ascontiguousarray(depths),
            width,
        )


def minimise_moves(
    current: Ints,
    tokens: Floats,
    *,
    layout: Layout,
    rule: Dispatch = Dispatch.EQUAL,
    ceiling: float,
    max_moves: int | None = None,
    plan: Ints | None = None,
    width: int = WIDTH,
) -> Ints:
    """[layers, slots]: least moves for the ceiling, or the least imbalance within `max_moves`; remaining copies stay.

    `plan` is a full new plan, by default made.  `current` may hold an expert twice on one GPU; one of the two is
    replaced.
    """
    _check(current, tokens, ceiling=ceiling, width=width)
    start = without_duplicates(current, tokens, layout=layout, rule=rule)
    least = moved_per_layer(current, start, layout=layout)
    if max_moves is not None and max_moves < least.sum():
        message = f"must be at least {least.sum()}, got {max_moves}"
        raise RuleError(
            [(("max_moves",), f"{message}" + ("; that many slots repeat another of their GPU" if least.sum() else ""))]
        )
    at_start = imbalance(start, tokens, layout=layout, rule=rule)
    if at_start.mean <= ceiling + SLACK or max_moves == least.sum():
        return in_kept_slots(start, current, layout=layout)
    full = relabelled(_planned(tokens, layout, rule) if plan is None else plan, current, layout=layout, rule=rule)
    full_moves = moved_per_layer(current, full, layout=layout)
    reach = imbalance(full, tokens, layout=layout, rule=rule).per_layer
    offers = [
        Options.of(
            np.array([least[at], full_moves[at]]),
            np.array([at_start.per_layer[at], reach[at]]),
            np.stack([start[at], full[at]]).astype(np.int16),
        )
        for at in range(len(current))
    ]
    search_input = _SearchInput(current, start, tokens, layout, rule)
    found = _searched(search_input, offers, reach=reach, ceiling=ceiling, max_moves=max_moves, width=width)
    return in_kept_slots(found, current, layout=layout)


def _searched(
    search_input: _SearchInput,
    offers: Sequence[Options],
    *,
    reach: Floats,
    ceiling: float,
    max_moves: int | None,
    width: int,
) -> Ints:
    """First one state per level, then each layer as deep as the selection requires.

    Where `max_moves` does not suffice, all layers use a ladder of targets.  Only the last selection uses `max_moves`,
    so more moves never give a less even result.
    """
    everywhere = np.full(len(offers), 1 + min(search_input.layout.slots, MAX_LEVELS))
    targets = np.maximum(1 + DEEP * (ceiling - 1), reach + NEAR)
    offers = _with(offers, search_input.frontiers(targets=targets, depths=everywhere, width=1))
    picks = choose(offers, ceiling=ceiling, max_moves=None)
    taken = [(int(it.moves[pick]), float(it.imbalances[pick])) for it, pick in zip(offers, picks, strict=True)]
    targets = 1 + AIM * (np.array([value for _, value in taken]) - 1)
    met = sum(value for _, value in taken) <= ceiling * len(taken) + SLACK
    depths = np.array([moves for moves, _ in taken]) + 1 + BEYOND if met else everywhere
    offers = _with(offers, search_input.frontiers(targets=targets, depths=depths, width=width))
    picks = choose(offers, ceiling=ceiling, max_moves=None)
    if max_moves is not None and sum(int(it.moves[pick]) for it, pick in zip(offers, picks, strict=True)) > max_moves:
        now = np.array([it.imbalances[0] for it in offers])
        for step in LADDER:
            targets = ceiling + step * np.maximum(now - ceiling, 0)
            offers = _with(offers, search_input.frontiers(targets=targets, depths=depths, width=width))
        picks = choose(offers, ceiling=ceiling, max_moves=max_moves)
    return np.stack([it.rows[pick] for it, pick in zip(offers, picks, strict=True)]).astype(np.int64)


def _with(offers: Sequence[Options], found: tuple[Floats, Experts]) -> list[Options]:
    return [it.with_more(longest, rows) for it, longest, rows in zip(offers, *found, strict=True)]


def _planned(tokens: Floats, layout: Layout, rule: Dispatch) -> Ints:
    if rule is Dispatch.NEAREST:
        from placement.nearest import balanced_nearest  # noqa: PLC0415 - on use: a caller may bring its own plan

        return balanced_nearest(tokens, layout=layout)
    from placement.balance import balanced  # noqa: PLC0415

    return balanced(tokens, layout=layout)


def without_duplicates(current: Ints, tokens: Floats, *, layout: Layout, rule: Dispatch) -> Ints:
    """A legal placement, with one new copy for each slot that repeats another of its GPU."""
    legal = current
    for layer, slot in _duplicates(current, layout):
        legal = current.copy() if legal is current else legal
        gpu = layout.gpu_of_slot[slot]
        here = legal[layer, layout.first_slot[gpu] : layout.first_slot[gpu + 1]]
        others = np.setdiff1d(np.arange(tokens.shape[1]), here)
        trials = np.repeat(legal[layer : layer + 1], len(others), axis=0)
        trials[:, slot] = others
        times = gpu_loads(trials, np.repeat(tokens[layer : layer + 1], len(others), axis=0), layout=layout, rule=rule)
        legal[layer, slot] = others[int(((times / layout.shares) ** 2).sum(axis=1).argmin())]
    check_slots(legal, experts=tokens.shape[1], layout=layout)
    return legal


def _duplicates(current: Ints, layout: Layout) -> Iterator[tuple[int, int]]:
    """Layer and slot of every copy whose GPU holds the expert in an earlier slot."""
    if current.ndim != 2 or current.shape[1] != layout.slots:
        return  # `check_slots` reports the field
    places = current + layout.gpu_of_slot * (int(current.max()) + 1)
    order = np.argsort(places, axis=1, kind="stable")
    ordered = np.take_along_axis(places, order, axis=1)
    for layer, at in np.argwhere(ordered[:, 1:] == ordered[:, :-1]).tolist():
        yield layer, int(order[layer, at + 1])


def _check(current: Ints, tokens: Floats, *, ceiling: float, width: int) -> None:
    if len(current) != len(tokens):
        raise RuleError([(("current",), f"must have as many layers as the loads ({len(tokens)}), got {len(current)}")])
    if not ceiling >= 1:
        raise RuleError([(("ceiling",), f"must be at least 1, got {ceiling:g}")])
    if width < 1:
        raise RuleError([(("width",), f"must be at least 1, got {width}")])
