"""The fewest expert copies to move so that the mean imbalance over layers comes back to a ceiling.

Each layer offers, for each number of moves, the evenest placement that the search finds, and as its last resort the
full new plan, relabelled; `budget` takes one offer of each layer so that all together move least.
"""

from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import RULES, Dispatch
from placement.imbalance import Imbalance, imbalance
from placement.layout import Layout
from placement.migration.budget import SLACK, Options, chosen
from placement.migration.moves import in_kept_slots, moved_per_layer
from placement.migration.relabelling import relabelled
from placement.slots import check_slots

WIDTH = 6  # states kept per level
DEEP, DEEPEST = 0.35, 0.1  # the part of the ceiling's distance from 1 that layers may keep, some making up for others
NEAR = 0.002  # first, no layer is searched deeper than this above what a full plan reaches
MOST_LEVELS = 96


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


def fewest_moves(
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
    """Least moves for the ceiling, or the least imbalance within `max_moves`.  `plan`: full new one; default: made."""
    _check(current, tokens, layout=layout, ceiling=ceiling, max_moves=max_moves, width=width)
    before = imbalance(current, tokens, layout=layout, rule=rule)
    full = relabelled(_planned(tokens, layout, rule) if plan is None else plan, current, layout=layout, rule=rule)
    full_moves = moved_per_layer(current, full, layout=layout)
    if before.mean <= ceiling + SLACK or max_moves == 0:
        nothing = np.zeros(len(current), dtype=np.int64)
        return Migration(current.copy(), nothing, before, before, ceiling, int(full_moves.sum()))
    reach = imbalance(full, tokens, layout=layout, rule=rule).per_layer
    found, after = current, before
    levels = 1 + min(layout.slots, MOST_LEVELS, layout.slots if max_moves is None else max_moves)
    for targets in (
        np.maximum(1 + DEEP * (ceiling - 1), reach + NEAR),
        np.full(len(reach), 1 + DEEPEST * (ceiling - 1)),
    ):
        longest, rows = _frontiers(
            current, tokens, layout=layout, rule=rule, targets=targets, width=width, levels=levels
        )
        offers = [
            _offers(
                longest[at],
                rows[at],
                full_moves=int(full_moves[at]),
                full_imbalance=float(reach[at]),
                full=full[at],
                row=current[at],
                now=float(before.per_layer[at]),
            )
            for at in range(len(current))
        ]
        picks = chosen(offers, ceiling=ceiling, max_moves=max_moves)
        found = np.stack([offer.rows[pick] for offer, pick in zip(offers, picks, strict=True)])
        after = imbalance(found, tokens, layout=layout, rule=rule)
        if after.mean <= ceiling + SLACK:
            break
    found = in_kept_slots(found, current, layout=layout)
    moved = moved_per_layer(current, found, layout=layout)
    return Migration(found, moved, before, after, ceiling, int(full_moves.sum()))


def _planned(tokens: Floats, layout: Layout, rule: Dispatch) -> Ints:
    if rule is Dispatch.NEAREST:
        from placement.nearest import balanced_nearest  # noqa: PLC0415 - on use: a caller may bring its own plan

        return balanced_nearest(tokens, layout=layout)
    from placement.balance import balanced  # noqa: PLC0415

    return balanced(tokens, layout=layout)


def _frontiers(
    current: Ints,
    tokens: Floats,
    *,
    layout: Layout,
    rule: Dispatch,
    targets: Floats,
    width: int,
    levels: int,
) -> tuple[Floats, Ints]:
    from placement.migration.search import frontiers  # noqa: PLC0415 - compiles on import

    longest = np.empty((len(current), levels))
    evenest = np.zeros((*longest.shape, layout.slots), dtype=np.int64)
    keys = np.random.default_rng(0).integers(1, 2**62, size=(layout.gpus, tokens.shape[1]))
    frontiers(
        np.ascontiguousarray(current, dtype=np.int64),
        np.ascontiguousarray(tokens, dtype=np.float64),
        np.ascontiguousarray(1.0 / (tokens.sum(axis=1, keepdims=True) * layout.shares)),
        layout.gpu_of_slot,
        layout.node_of_gpu,
        keys,
        RULES[rule],
        targets,
        width,
        longest,
        evenest,
    )
    return longest, evenest


def _offers(
    longest: Floats, rows: Ints, *, full_moves: int, full_imbalance: float, full: Ints, row: Ints, now: float
) -> Options:
    """What the search found for a layer, what is loaded, and the full plan."""
    moves = np.concatenate([[0], np.arange(len(longest)), [full_moves]]).astype(np.int64)
    values = np.concatenate([[now], longest, [full_imbalance]])
    return Options.of(moves, values, np.concatenate([row[np.newaxis], rows, full[np.newaxis]]))


def _check(current: Ints, tokens: Floats, *, layout: Layout, ceiling: float, max_moves: int | None, width: int) -> None:
    if len(current) != len(tokens):
        raise RuleError([(("current",), f"must have as many layers as the loads ({len(tokens)}), got {len(current)}")])
    check_slots(current, experts=tokens.shape[1], layout=layout)
    if not ceiling >= 1:
        raise RuleError([(("ceiling",), f"must be at least 1, got {ceiling:g}")])
    if max_moves is not None and max_moves < 0:
        raise RuleError([(("max_moves",), f"must be at least 0, got {max_moves}")])
    if width < 1:
        raise RuleError([(("width",), f"must be at least 1, got {width}")])
