"""A placement judged on loads it was not made for: what it is worth now, and what acting would bring and cost.

Importing this module loads compiled code: import it late.
"""

from collections.abc import Iterator

from pydantic import Field

from fleet.documents import Flaw, Frozen, RuleError
from placement.bounds import lower_bound
from placement.dispatch import Dispatch
from placement.document import Placement, Spread
from placement.drift import Staleness, staleness
from placement.imbalance import imbalance
from placement.loads import ExpertLoads
from placement.migration import moved_copies
from placement.pipeline import MOVES_CEILING, even, moved
from placement.question import Question


class Judgement(Frozen):
    """What is to be said of a placement under new loads."""

    promised: float = Field(description="Mean imbalance on the loads it was made for.")
    imbalance: Spread = Field(description="On the new loads.")
    bound: Spread = Field(description="What no placement of the new loads can be below.")
    fresh: float = Field(description="Mean imbalance of one made for the new loads, were moving free.")
    ceiling: float
    holds: bool = Field(description="Whether it is still under the ceiling.")
    moved_copies: int = Field(
        description="Copies to load anew to get back under the ceiling, or as near as moves come."
    )
    after_moves: float = Field(description="Mean imbalance then.")
    fresh_moved_copies: int = Field(description="Copies to load anew for the one made for the new loads.")
    expected: tuple[float, ...] = Field(description="Mean imbalance of the next windows, where several were given.")
    act_in: int | None = Field(description="Windows until it is expected above the ceiling; null: not foreseen.")


def judged(placement: Placement, loads: ExpertLoads, *, ceiling: float | None = None) -> Judgement:
    """A placement on new loads of the same model.  RuleError where they are not."""
    RuleError.raise_for(_flaws(placement, loads))
    rule, layout, now = Dispatch(placement.dispatch), placement.layout, placement.expert_of_slot
    limit = ceiling or MOVES_CEILING
    question = Question(loads=loads, layout=layout, rule=placement.dispatch, current=now, max_imbalance=limit).checked()
    bound = lower_bound(loads.total, layout=layout, rule=rule)
    found = imbalance(now, loads.total, layout=layout, rule=rule)
    foreseen = _foreseen(placement, loads, limit)
    fresh, back = even(question, bound), moved(question, now)
    return Judgement(
        promised=placement.imbalance.mean,
        imbalance=Spread.of(found.per_layer),
        bound=Spread.of(bound),
        fresh=imbalance(fresh, loads.total, layout=layout, rule=rule).mean,
        ceiling=limit,
        holds=found.mean <= limit,
        moved_copies=moved_copies(now, back, layout=layout),
        after_moves=imbalance(back, loads.total, layout=layout, rule=rule).mean,
        fresh_moved_copies=moved_copies(now, fresh, layout=layout),
        expected=() if foreseen is None else tuple(window.mean for window in foreseen.expected),
        act_in=foreseen.act_in if foreseen is not None else None if found.mean <= limit else 0,
    )


def _foreseen(placement: Placement, loads: ExpertLoads, ceiling: float) -> Staleness | None:
    """What comes next, which takes more than one window to tell."""
    if loads.windows == 1:
        return None
    rule, layout = Dispatch(placement.dispatch), placement.layout
    return staleness(placement.expert_of_slot, loads.tokens, layout=layout, rule=rule, act_above=ceiling)


def _flaws(placement: Placement, loads: ExpertLoads) -> Iterator[Flaw]:
    if loads.experts != placement.experts:
        yield ("loads",), f"must have {placement.experts} experts per layer, as the placement, got {loads.experts}"
    if loads.layers != placement.layers:
        wanted, got = (
            f"{len(layers)} layers ({layers[0]} to {layers[-1]})" for layers in (placement.layers, loads.layers)
        )
        yield ("loads",), f"must have the placement's {wanted}, got {got}"
