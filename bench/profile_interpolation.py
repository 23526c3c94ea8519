"""Interpolation of measured profiles: each size of aiconfigurator's silicon table is left out and predicted.

Of every configuration with at least three sizes, each size in turn is left out, and its highest rate under an SLO is
predicted from the others (`planner.profiles`).  Only sizes whose sweep encloses a rate are compared.  Without the
table, which is not part of this project, nothing is measured.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.harness import Row, text
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.slo import LatencyLimits, Slo
from planner.profiles import Basis, Profiles, read_points
from planner.profiles.interpolation import Cell, Size, at_size, grouped
from planner.profiles.load_curves import End, SustainedRate, held

LIMITS_MS = (20.0, 40.0, 80.0)


def run() -> list[Row]:
    table = text("planner", "aiconfigurator/silicon_sample.csv")
    if table is None:
        return [{"skipped": "the silicon table is not at hand"}]
    points = read_points(table, name="silicon", gpus=builtin_gpus(), models=builtin_models()).points
    return [row for limit_ms in LIMITS_MS for row in _rows(Profiles(points=points), limit_ms)]


def _rows(profiles: Profiles, limit_ms: float) -> Iterator[Row]:
    slo = Slo(tpot_ms=LatencyLimits(mean=limit_ms))
    configurations = map(profiles.of, profiles.configurations())
    pairs_left_out = [pair for configuration in configurations for pair in _left_out(configuration, slo)]
    for basis in Basis:
        pairs = [(cell, true) for cell, true in pairs_left_out if cell.basis is basis]
        row = {"tpot_limit_ms": limit_ms, "basis": str(basis), "sizes": len(pairs)}
        rates = np.array([true.rate_rps for _, true in pairs])
        inside = [cell.low_rps <= true.rate_rps <= cell.high_rps for cell, true in pairs]
        if pairs and basis is not Basis.NONE:
            ratio = np.array([cell.max_rps for cell, _ in pairs]) / rates
            row |= {
                "median_ratio": round(float(np.median(ratio)), 3),
                "mape_pct": round(float(np.abs(ratio - 1).mean()) * 100, 1),
            }
            row |= {"overestimated_by_over_10_pct": round(float((ratio > 1.1).mean()), 3)}
        yield row | ({"inside_pct": round(float(np.mean(inside)) * 100, 1)} if pairs else {})


def _left_out(points: Any, slo: Slo) -> Iterator[tuple[Cell, SustainedRate]]:
    sweeps = {size: sweep for size, group in grouped(points).items() if (sweep := held(group, slo)) is not None}
    for size, sweep in sweeps.items() if len(sweeps) >= 3 else ():
        if sweep.serves and sweep.end is End.ENCLOSED:
            others: dict[Size, SustainedRate] = {known: other for known, other in sweeps.items() if known != size}
            yield at_size(size, lower=(0.0, 0.0), sweeps=others, slo=slo), sweep
