"""From measured tables to the document of curves: new measurements replace the base's.

Facts that no table has (idle power, sensitivity of phases to clocks, the server around the boards) come from the base,
which cites them.
"""

import datetime as dt
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from fleet.catalogues import folded
from fleet.documents import RuleError
from power.measured_models import limits, requests, serving
from power.measured_models.document import BoardShares, Engine, PowerShares, ServingShares, Spread
from power.measured_models.points import ServingPoint, grouped
from power.measured_models.tables import Points, TableKind

FitT = TypeVar("FitT")

MIN_FAMILIES = 2


def fit_curves(points: Points, *, base: PowerShares, date: dt.date, source: str | None = None) -> PowerShares:
    """Return the fits on the tables over the base; raise RuleError if no table can be fitted."""
    if not (points.serving or points.requests or points.limits):
        left_out = "; ".join(f"{count} rows: {reason}" for reason, count in points.left_out.most_common())
        raise RuleError([((), f"no row can be used ({left_out})")])
    boards, shares, engines = {folded(one.name): one for one in base.boards}, [], []
    for gpu, own in grouped(points.serving, lambda one: one.gpu).items():
        cited = source or _cited(points, TableKind.SERVING)
        found = _serving(own, idle=_idle(base, gpu), source=cited, date=date)
        boards[folded(gpu)] = found[0]
        shares += found[1]
        engines += found[2]
    idle = {run.gpu: base.idle_share(run.gpu) for run in points.requests}
    engines += requests.engines_of(points.requests, idle=idle)
    fitted = base.model_copy(
        update={
            "boards": tuple(boards.values()),
            "serving": _over(base.serving, shares, lambda one: folded(one.name)),
            "engines": _over(base.engines, engines, _which),
        }
    )
    return _with_limits(fitted, points, source=source or _cited(points, TableKind.LIMITS, TableKind.WINDOWS), date=date)


def _serving(
    own: Sequence[ServingPoint], *, idle: Spread, source: str, date: dt.date
) -> tuple[BoardShares, list[ServingShares], list[Engine]]:
    families = serving.families_of(own)
    if len(families) < MIN_FAMILIES:
        message = f"{own[0].gpu}: {len(families)} engines were measured at {serving.MIN_POINTS} batches or more"
        raise RuleError([((), f"{message}, expected at least {MIN_FAMILIES}")])
    board = serving.board_shares(own, idle=idle, source=source, date=date)
    shares = serving.serving_shares(own, idle=idle.mid, source=source, date=date)
    saturation = shares.saturation if shares else max(serving.SATURATIONS)
    engines = serving.engines_of(own, idle=idle.mid, saturation=saturation)
    return board, [shares] if shares else [], engines


def _with_limits(fitted: PowerShares, points: Points, *, source: str, date: dt.date) -> PowerShares:
    if not points.limits:
        return fitted
    sweep = limits.Sweep(points.limits)
    if len(sweep.shares) < limits.MIN_POINTS:
        message = f"no job draws over {limits.COMPUTE_BOUND:.0%} of its highest power limit, so no limit binds it"
        raise RuleError([(("power_limit",), message)])
    clock = limits.clock_shares(sweep, cited=fitted.clock, source=source, date=date)
    sweeps = tuple(limits.limit_sweeps(sweep, source=source, date=date))
    return fitted.model_copy(update={"clock": clock, "sweeps": sweeps})


def _idle(base: PowerShares, gpu: str) -> Spread:
    return base.by_name.get(folded(gpu), base.unmeasured).idle_share


def _over(old: Sequence[FitT], new: Sequence[FitT], key: Callable[[FitT], Hashable]) -> tuple[FitT, ...]:
    measured = {key(one) for one in new}
    return (*new, *(one for one in old if key(one) not in measured))


def _which(engine: Engine) -> Hashable:
    return folded(engine.gpu), folded(engine.model), engine.gpus, engine.layout


def _cited(points: Points, *kinds: TableKind) -> str:
    named = ((kind, points.sources.get(kind)) for kind in kinds)
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in named if names)
