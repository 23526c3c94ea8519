"""The fewest moved copies that bring the mean imbalance over layers under a ceiling.

Each layer offers the most even placement found for each number of moves, and the relabelled full plan.  `knapsack`
selects one offer of each layer with the fewest moves in total.  The selection gives the imbalance that each layer must
reach; a second, wider search aims at it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Experts, Floats, Ints
from placement.dispatch import RULES, Dispatch
from placement.imbalance import Imbalance, imbalance
from placement.layout import Layout
from placement.migration.duplicates import without_duplicates
from placement.migration.knapsack import SLACK, Options, choose
from placement.migration.moves import in_kept_slots, moved_per_layer
from placement.migration.relabelling import relabelled

WIDTH = 12  # states kept per level
DEEP = 0.35  # of the ceiling's distance from 1: the first target of all layers, some making up for others
NEAR = 0.002  # above the imbalance of a full plan: no layer is searched deeper
AIM = 0.35  # of the distance of a layer's selected imbalance from 1: the target of the wider search
BEYOND = 1  # levels searched beyond the selected moves
LADDER = (0.75, 0.5, 0.25, 0.0)  # targets for few moves: between the ceiling, 0, and the present imbalance, 1
MAX_LEVELS = 96


@dataclass(frozen=True, eq=False)
class Migration:
    """From the current placement to one with few moves."""

    expert_of_slot: Ints  # [layers, slots]; remaining copies keep their slots
    moved: Ints  # [layers]: copies to load
    before: Imbalance
    after: Imbalance
    ceiling: float  # of the mean
    full_plan_moves: int  # moves of a full new plan, relabelled

    @property
    def moves(self) -> int:
        return int(self.moved.sum())

    @property
    def reached(self) -> bool:
        return self.after.mean <= self.ceiling + SLACK


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

        layers, slots = self.current.shape
        longest = np.empty((layers, int(depths.max())))
        evenest = np.empty((*longest.shape, slots), dtype=np.int16)
        keys = np.random.default_rng(0).integers(1, 2**62, size=(self.layout.gpus, self.tokens.shape[1]))
        frontiers(
            np.ascontiguousarray(self.current, dtype=np.int16),
            np.ascontiguousarray(self.start, dtype=np.int16),
            np.ascontiguousarray(self.tokens, dtype=np.float64),
            np.ascontiguousarray(1.0 / (self.tokens.sum(axis=1, keepdims=True) * self.layout.shares)),
            self.layout.first_slot,
            self.layout.gpu_of_slot,
            self.layout.node_of_gpu,
            np.arange(self.layout.gpus),
            keys,
            RULES[self.rule],
            np.ascontiguousarray(targets),
            np.ascontiguousarray(depths),
            width,
            longest,
            evenest,
        )
        return longest, evenest


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
) -> Migration:
    """Least moves for the ceiling, or the least imbalance within `max_moves`; `plan`: a full new plan, by default made.

    `current` may hold an expert twice on one GPU, as EPLB's placements do; one of the two is replaced.
    """
    _check(current, tokens, ceiling=ceiling, width=width)
    start = without_duplicates(current, tokens, layout=layout, rule=rule)
    least = moved_per_layer(current, start, layout=layout)
    if max_moves is not None and max_moves < least.sum():
        message = f"must be at least {least.sum()}, got {max_moves}"
        raise RuleError(
            [(("max_moves",), f"{message}" + ("; that many slots repeat another of their GPU" if least.sum() else ""))]
        )
    before = imbalance(current, tokens, layout=layout, rule=rule)
    full = relabelled(_planned(tokens, layout, rule) if plan is None else plan, current, layout=layout, rule=rule)
    full_moves = moved_per_layer(current, full, layout=layout)
    at_start = imbalance(start, tokens, layout=layout, rule=rule)
    found, after = start, at_start
    if at_start.mean > ceiling + SLACK and max_moves != least.sum():
        search_input = _SearchInput(current, start, tokens, layout, rule)
        reach = imbalance(full, tokens, layout=layout, rule=rule).per_layer
        offers = [
            Options.of(
                np.array([least[at], full_moves[at]]),
                np.array([at_start.per_layer[at], reach[at]]),
                np.stack([start[at], full[at]]).astype(np.int16),
            )
            for at in range(len(current))
        ]
        found = _searched(search_input, offers, reach=reach, ceiling=ceiling, max_moves=max_moves, width=width)
        after = imbalance(found, tokens, layout=layout, rule=rule)
    found = in_kept_slots(found, current, layout=layout)
    moved = moved_per_layer(current, found, layout=layout)
    return Migration(found, moved, before, after, ceiling, int(full_moves.sum()))


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


def _check(current: Ints, tokens: Floats, *, ceiling: float, width: int) -> None:
    if len(current) != len(tokens):
        raise RuleError([(("current",), f"must have as many layers as the loads ({len(tokens)}), got {len(current)}")])
    if not ceiling >= 1:
        raise RuleError([(("ceiling",), f"must be at least 1, got {ceiling:g}")])
    if width < 1:
        raise RuleError([(("width",), f"must be at least 1, got {width}")])
