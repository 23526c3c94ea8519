"""The fewest expert copies to move so that the mean imbalance over layers comes back to a ceiling.

Each layer offers, for each number of moves, the evenest placement that the search finds, and as its last resort the
full new plan, relabelled; `budget` takes one offer of each layer so that all together move least.  What it takes says
how even each layer has to become, which differs from layer to layer: a second, wider search aims each at just that.
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
DEEP = 0.35  # the part of the ceiling's distance from 1 that layers may keep at first, some making up for others
NEAR = 0.002  # no layer is searched deeper than this above what a full plan reaches
AIM = 0.35  # the part of its distance from 1 that a layer's chosen imbalance may keep in the wider search
BEYOND = 1  # levels searched beyond the moves chosen
LADDER = (0.75, 0.5, 0.25, 0.0)  # where moves are short: aims between the ceiling, 0, and the imbalance now, 1
MAX_LEVELS = 96


@dataclass(frozen=True, eq=False)
class Migration:
    """From the placement now loaded to one that moves little."""

    expert_of_slot: Ints  # [layers, slots]; what stays keeps its slot
    moved: Ints  # [layers]: copies that GPUs have to load
    before: Imbalance
    after: Imbalance
    ceiling: float  # sought, of the mean
    full_plan_moves: int  # what loading a full new plan would have moved, its GPUs relabelled

    @property
    def moves(self) -> int:
        """Of all layers together."""
        return int(self.moved.sum())

    @property
    def reached(self) -> bool:
        """Whether the mean imbalance is within the ceiling now."""
        return self.after.mean <= self.ceiling + SLACK


@dataclass(frozen=True, eq=False)
class _Sought:
    """What is asked for, as all searches need it."""

    current: Ints
    start: Ints  # `current` without twins
    tokens: Floats
    layout: Layout
    rule: Dispatch

    def frontiers(self, *, targets: Floats, depths: Ints, width: int) -> tuple[Floats, Experts]:
        """For each layer and number of moves below its depth: imbalance [layers, levels], and the placements."""
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
    """Least moves for the ceiling, or the least imbalance within `max_moves`.  `plan`: full new one; default: made.

    `current` may hold an expert twice on one GPU, as EPLB's placements do; one of the two is overwritten.
    """
    _check(current, tokens, ceiling=ceiling, width=width)
    start = without_duplicates(current, tokens, layout=layout, rule=rule)
    least = moved_per_layer(current, start, layout=layout)
    if max_moves is not None and max_moves < least.sum():
        message = f"must be at least {least.sum()}, got {max_moves}"
        raise RuleError(
            [(("max_moves",), f"{message}" + ("; so many slots repeat their GPU's" if least.sum() else ""))]
        )
    before = imbalance(current, tokens, layout=layout, rule=rule)
    full = relabelled(_planned(tokens, layout, rule) if plan is None else plan, current, layout=layout, rule=rule)
    full_moves = moved_per_layer(current, full, layout=layout)
    at_start = imbalance(start, tokens, layout=layout, rule=rule)
    found, after = start, at_start
    if at_start.mean > ceiling + SLACK and max_moves != least.sum():
        sought = _Sought(current, start, tokens, layout, rule)
        reach = imbalance(full, tokens, layout=layout, rule=rule).per_layer
        offers = [
            Options.of(
                np.array([least[at], full_moves[at]]),
                np.array([at_start.per_layer[at], reach[at]]),
                np.stack([start[at], full[at]]).astype(np.int16),
            )
            for at in range(len(current))
        ]
        found = _searched(sought, offers, reach=reach, ceiling=ceiling, max_moves=max_moves, width=width)
        after = imbalance(found, tokens, layout=layout, rule=rule)
    found = in_kept_slots(found, current, layout=layout)
    moved = moved_per_layer(current, found, layout=layout)
    return Migration(found, moved, before, after, ceiling, int(full_moves.sum()))


def _searched(
    sought: _Sought, offers: Sequence[Options], *, reach: Floats, ceiling: float, max_moves: int | None, width: int
) -> Ints:
    """First one state per level, then each layer as far as that says it has to go.

    Where the moves allowed do not suffice, all layers go down a ladder of aims.  No search knows how many moves are
    allowed, only the last choice does: more of them never make it less even.
    """
    everywhere = np.full(len(offers), 1 + min(sought.layout.slots, MAX_LEVELS))
    targets = np.maximum(1 + DEEP * (ceiling - 1), reach + NEAR)
    offers = _with(offers, sought.frontiers(targets=targets, depths=everywhere, width=1))
    picks = choose(offers, ceiling=ceiling, max_moves=None)
    taken = [(int(it.moves[pick]), float(it.imbalances[pick])) for it, pick in zip(offers, picks, strict=True)]
    targets = 1 + AIM * (np.array([value for _, value in taken]) - 1)
    met = sum(value for _, value in taken) <= ceiling * len(taken) + SLACK
    depths = np.array([moves for moves, _ in taken]) + 1 + BEYOND if met else everywhere
    offers = _with(offers, sought.frontiers(targets=targets, depths=depths, width=width))
    picks = choose(offers, ceiling=ceiling, max_moves=None)
    if max_moves is not None and sum(int(it.moves[pick]) for it, pick in zip(offers, picks, strict=True)) > max_moves:
        now = np.array([it.imbalances[0] for it in offers])
        for step in LADDER:
            targets = ceiling + step * np.maximum(now - ceiling, 0)
            offers = _with(offers, sought.frontiers(targets=targets, depths=depths, width=width))
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
