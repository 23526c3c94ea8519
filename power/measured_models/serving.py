"""Fits on averages of serving engines: board power by load, batch and model
(docs/explanation/power/measured-models.md, 2).

    share = idle + e^level * min(batch, saturation)^b * (active / GPUs)^c * (total / GPUs)^d * GPUs^e

is linear in its logarithm, so least squares solves it directly.  Errors are of held-out models (predicted from size)
and, for a measured engine, of one batch predicted from its others.
"""

import datetime as dt
from collections.abc import Sequence

import numpy as np

from power.arrays import Floats
from power.measured_models.document import BoardShares, Engine, Error, ServingShares, Spread
from power.measured_models.points import ServingPoint, error_of, grouped, spread_of, token_times

SATURATIONS = (64.0, 128.0, 256.0, 512.0)
MIN_POINTS = 3  # of a family: a curve needs more than its two ends
MIN_MODELS = 3  # one held out leaves two
MIN_RISE = 0.005  # a board that writes tokens draws more than an idle one; keeps logarithms finite
LOAD_EXPONENTS = np.arange(0.02, 1.0, 0.01)


def families_of(points: Sequence[ServingPoint]) -> list[list[ServingPoint]]:
    """Return the families of configurations that differ in batch only and have enough members."""
    return [family for family in grouped(points, lambda one: one.family).values() if len(family) >= MIN_POINTS]


def board_shares(points: Sequence[ServingPoint], *, idle: Spread, source: str, date: dt.date) -> BoardShares:
    """Return the power by load, as the planner takes it: busy share, and `g` of idle + (busy - idle) * load^g."""
    families = families_of(points)
    tops = [max(family, key=lambda point: point.rate_tokens_per_s) for family in families]
    pairs = [(point, top) for family, top in zip(families, tops, strict=True) for point in family]
    load = np.array([point.rate_tokens_per_s / top.rate_tokens_per_s for point, top in pairs])
    share, busy = np.array([point.share for point, _ in pairs]), np.array([top.share for _, top in pairs])

    def ratios(exponent: float) -> Floats:
        return np.asarray(share / (idle.mid + (busy - idle.mid) * load**exponent))

    best = float(min(LOAD_EXPONENTS, key=lambda exponent: float(np.sum((ratios(exponent) - 1) ** 2))))
    return BoardShares(
        name=points[0].gpu,
        idle_share=idle,
        busy_share=spread_of([top.share for top in tops]),
        load_exponent=round(best, 4),
        load_spread=spread_of(ratios(best)),
        measured=True,
        source=source,
        date=date,
    )


def serving_shares(points: Sequence[ServingPoint], *, idle: float, source: str, date: dt.date) -> ServingShares | None:
    """Fit power by batch and model size; None if there are too few models to hold one out."""
    if len({point.kin for point in points}) < MIN_MODELS:
        return None
    known = {each: _known_engine_error(points, idle, each) for each in SATURATIONS}
    saturation = min(known, key=lambda each: known[each].mean)
    features, target = _features(points, saturation), _log_rise(points, idle)
    level, batch, active, total, gpus = (round(float(value), 4) for value in _solved(features, target))
    constant = np.ones((len(points), 1))
    return ServingShares(
        name=points[0].gpu,
        level=level,
        batch=min(1.0, max(0.0, batch)),
        saturation=saturation,
        active=active,
        total=total,
        gpus=gpus,
        constant_error=_held_out_error(points, constant, target, idle),
        new_model_error=_held_out_error(points, features, target, idle),
        known_engine_error=known[saturation],
        families=len(grouped(points, lambda one: one.family)),
        source=source,
        date=date,
    )


def engines_of(points: Sequence[ServingPoint], *, idle: float, saturation: float) -> list[Engine]:
    """Fit every measured engine with its own level; the batch exponent is the board's."""
    exponent = _within(points, idle, saturation)[2]
    return [_engine(family, idle, saturation, exponent) for family in families_of(points)]


def _engine(family: Sequence[ServingPoint], idle: float, saturation: float, exponent: float) -> Engine:
    first, batches = family[0], [point.batch for point in family]
    levels = _log_rise(family, idle) - exponent * np.log(np.minimum(batches, saturation))
    token_s, growth, token_error = token_times(batches, [point.token_s for point in family])
    return Engine(
        gpu=first.gpu,
        model=first.model,
        gpus=first.gpus,
        active_billions=first.active_billions,
        layout=first.layout,
        idle_share=idle,
        rise_share=round(float(np.exp(levels.mean())), 4),
        batch_exponent=round(exponent, 4),
        saturation=saturation,
        token_s=token_s,
        token_batch_growth=growth,
        batches=(round(min(batches), 1), round(max(batches), 1)),
        power_error=_predicted_from_others(family, levels, idle, saturation, exponent),
        token_time_error=token_error,
    )


def _predicted_from_others(
    family: Sequence[ServingPoint], levels: Floats, idle: float, saturation: float, exponent: float
) -> Error:
    others = (levels.sum() - levels) / (len(levels) - 1)
    batches = np.minimum([point.batch for point in family], saturation)
    return error_of(np.minimum(1, idle + np.exp(others) * batches**exponent), [point.share for point in family])


def _known_engine_error(points: Sequence[ServingPoint], idle: float, saturation: float) -> Error:
    """Return the error of one batch predicted from its engine's others, the exponent fitted on other engines."""
    families = families_of(points)
    across, along, _ = _within(points, idle, saturation)
    predicted: list[float] = []
    for family, own_across, own_along in zip(families, across, along, strict=True):
        rest = along.sum() - own_along
        exponent = (across.sum() - own_across) / rest if rest > 0 else 0.0
        logs = np.log(np.minimum([point.batch for point in family], saturation))
        levels = _log_rise(family, idle) - exponent * logs
        others = (levels.sum() - levels) / (len(levels) - 1)
        predicted += list(np.minimum(1, idle + np.exp(others + exponent * logs)))
    return error_of(predicted, [point.share for family in families for point in family])


def _within(points: Sequence[ServingPoint], idle: float, saturation: float) -> tuple[Floats, Floats, float]:
    """Return, for each family, sum(xy) and sum(xx) of logarithms about its means, and the exponent of all together."""
    across, along = [], []
    for family in families_of(points):
        logs, rises = np.log(np.minimum([point.batch for point in family], saturation)), _log_rise(family, idle)
        logs, rises = logs - logs.mean(), rises - rises.mean()
        across.append(float(logs @ rises))
        along.append(float(logs @ logs))
    whole = sum(along)
    return np.array(across), np.array(along), min(1.0, max(0.0, sum(across) / whole)) if whole > 0 else 0.0


def _held_out_error(points: Sequence[ServingPoint], features: Floats, target: Floats, idle: float) -> Error:
    kin, predicted = np.array([point.kin for point in points]), np.empty(len(points))
    for model in dict.fromkeys(kin):
        held = kin == model
        predicted[held] = np.minimum(1, idle + np.exp(features[held] @ _solved(features[~held], target[~held])))
    return error_of(predicted, [point.share for point in points])


def _features(points: Sequence[ServingPoint], saturation: float) -> Floats:
    gpus = np.array([point.gpus for point in points])
    sizes = np.array([(point.active_billions, point.total_billions) for point in points]) / gpus[:, None]
    batches = np.minimum([point.batch for point in points], saturation)
    return np.column_stack((np.ones(len(points)), np.log(batches), np.log(sizes), np.log(gpus)))


def _log_rise(points: Sequence[ServingPoint], idle: float) -> Floats:
    return np.log(np.maximum(MIN_RISE, np.array([point.share for point in points]) - idle))


def _solved(features: Floats, target: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(features, target, rcond=None)[0])
