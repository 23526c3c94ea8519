"""The assessment of a placement on new loads: its imbalance, the cost and benefit of moves, and whether to act.

The document contains the last decision: an imbalance above `settle_at` means that nothing better was found or allowed
when it was made, so it counts as settled there.  Only moves in progress need `under_way`.

Importing this module loads compiled code: import it late.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.documents import RuleError, Violation
from placement.bounds import lower_bound
from placement.document import Moves, Placement, Spread
from placement.drift import Staleness, staleness
from placement.drift_request import Assessment
from placement.imbalance import imbalance
from placement.loads import ExpertLoads
from placement.migration import moved_copies
from placement.migration.cost_benefit import (
    CostBenefit,
    Decision,
    Levels,
    Window,
    decide,
    evaluate_migration,
    idle_up_to,
)
from placement.pipeline import MOVES_CEILING, solve_balance, solve_migration
from placement.problem import Pace, PlacementProblem
from placement.report import moves

ONE_LEVEL = Levels(MOVES_CEILING, MOVES_CEILING)
HOUR = Window(window_s=3600, moe_share=0.4, slowdown=1.0)
ALIKE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Terms:
    levels: Levels = ONE_LEVEL
    window: Window = HOUR
    pace: Pace | None = None  # without it, moves are free
    under_way: bool = False  # moves have begun and continue down to `settle_at`


def assess(placement: Placement, loads: ExpertLoads, *, terms: Terms | None = None) -> Assessment:
    RuleError.raise_for(_violations(placement, loads))
    terms = terms or Terms()
    levels, gpus = terms.levels, placement.gpus
    rule, layout, now = placement.dispatch, placement.layout, placement.expert_of_slot
    problem = PlacementProblem(
        loads=loads, layout=layout, rule=rule, current=now, max_imbalance=levels.settle_at
    ).checked()
    bound = lower_bound(loads.total, layout=layout, rule=rule)
    found = imbalance(now, loads.total, layout=layout, rule=rule)
    predicted = _forecast_staleness(placement, loads, levels.act_above)
    fresh, back = solve_balance(problem, bound), solve_migration(problem, now)
    after = imbalance(back, loads.total, layout=layout, rule=rule).mean
    pace = terms.pace
    planned = None if pace is None else moves(now, back, loads, layout=layout, rule=rule, pace=pace)
    benefit = _benefit(found.mean, after, planned, terms.window)
    last = _last(placement, terms)
    decision = decide(last, now=found.mean, levels=levels, benefit=benefit)
    holds = found.mean <= levels.act_above
    return Assessment(
        act=decision.act,
        reason=_reason(found.mean, last, decision, benefit, terms, gpus=gpus),
        promised=placement.imbalance.mean,
        imbalance=Spread.of(found.per_layer),
        bound=Spread.of(bound),
        fresh=imbalance(fresh, loads.total, layout=layout, rule=rule).mean,
        act_above=levels.act_above,
        settle_at=levels.settle_at,
        settled_at=decision.settled_at,
        holds=holds,
        moved_copies=moved_copies(now, back, layout=layout),
        after_moves=after,
        gain_gpu_s=benefit.gain_s * gpus,
        cost_gpu_s=None if planned is None else benefit.cost_s * gpus,
        moves=planned,
        fresh_moved_copies=moved_copies(now, fresh, layout=layout),
        expected=() if predicted is None else predicted.expected,
        act_in=predicted.act_in if predicted is not None else None if holds else 0,
    )


def _benefit(now: float, after: float, planned: Moves | None, window: Window) -> CostBenefit:
    moving_s, batches = (0.0, 0) if planned is None else (planned.duration_s, len(planned.batches))
    return evaluate_migration(now=now, after=after, moving_s=moving_s, batches=batches, window=window)


def _last(placement: Placement, terms: Terms) -> Decision:
    if terms.under_way:
        return Decision(act=True)
    promised = placement.imbalance.mean
    return Decision(settled_at=promised if promised > terms.levels.settle_at + ALIKE else None)


def _reason(now: float, last: Decision, decision: Decision, benefit: CostBenefit, terms: Terms, *, gpus: int) -> str:
    levels, rests = terms.levels, idle_up_to(last, terms.levels)
    gain = f"gains {benefit.gain_s * gpus:,.1f} GPU-seconds in {terms.window.window_s:,.6g} s"
    if terms.pace is not None:
        gain += f" and costs {benefit.cost_s * gpus:,.1f}"
    if decision.act:
        begun = "moves are under way" if last.act else f"the mean of {now:.4f} is above {rests:.6g}"
        return f"{begun}, and moving {gain}"
    if now <= levels.settle_at + ALIKE:
        return f"the mean of {now:.4f} is within {levels.settle_at:.6g}"
    if not last.act and now <= rests + ALIKE:
        settled = "" if rests <= levels.act_above else f", as it settled at {last.settled_at:.4f}"
        return f"the mean of {now:.4f} is not above {rests:.6g}{settled}"
    if benefit.gain_s <= 0:
        return f"no move lowers the mean of {now:.4f}"
    return f"moving {gain}, of which {benefit.margin:g} times must be gained"


def _forecast_staleness(placement: Placement, loads: ExpertLoads, act_above: float) -> Staleness | None:
    if loads.windows == 1:
        return None
    rule, layout = placement.dispatch, placement.layout
    return staleness(placement.expert_of_slot, loads.tokens, layout=layout, rule=rule, act_above=act_above)


def _violations(placement: Placement, loads: ExpertLoads) -> Iterator[Violation]:
    if loads.experts != placement.experts:
        yield ("loads",), f"must have {placement.experts} experts per layer, as the placement, got {loads.experts}"
    if loads.layers != placement.layers:
        wanted, got = (
            f"{len(layers)} layers ({layers[0]} to {layers[-1]})" for layers in (placement.layers, loads.layers)
        )
        yield ("loads",), f"must have the placement's {wanted}, got {got}"
