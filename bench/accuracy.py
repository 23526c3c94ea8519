"""Error of the performance model on measured points that it was not fitted on, beside the plain roofline.

Each row holds points back, fits the others again and predicts the points held back; nothing comes from the shipped
file.  The points are `silicon_sample.csv` of aiconfigurator, in FLEETWRIGHT_PLANNER_DATA or ../shared/data/planner.
"""

import csv

import numpy as np

from bench.harness import Row, text
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.performance.aiconfigurator import read_points, silicon_models
from planner.performance.closed_loop import Sample, predict
from planner.performance.coefficients import Coefficients
from planner.performance.fitting import Validation, held_back, mape, validate

POINTS = "aiconfigurator/silicon_sample.csv"
SEED = 0
METRICS = ("tpot", "ttft")


def run() -> list[Row]:
    table = text("planner", POINTS)
    if table is None:
        return [{"held_back": f"skipped: no measured points, set FLEETWRIGHT_PLANNER_DATA to where {POINTS} is"}]
    lines = csv.DictReader(table.splitlines())
    reading = read_points(lines, gpus=builtin_gpus(), models=(builtin_models(), silicon_models()))
    sample = Sample(reading.points)
    rows = []
    for split, held in held_back(sample, seed=SEED):
        rows += _rows(validate(sample, split=split, held=held))
    for metric in METRICS:
        unseen = [row for row in rows if row["held_back"].startswith("without") and row["metric"] == metric]
        rows.append(_mean("mean over GPU types left out", metric, unseen))
    for reason, count in reading.rejected.items():
        rows.append({"held_back": f"not used: {reason}", "metric": "rows", "points": count})
    return rows


def _rows(validation: Validation) -> list[Row]:
    sample, plain = validation.held_back, predict(validation.held_back, Coefficients())
    found = []
    for metric in METRICS:
        measured, ours = getattr(sample, f"{metric}_s"), getattr(validation.predicted, f"{metric}_s")
        found.append(
            {
                "held_back": validation.split,
                "metric": metric,
                "points": len(sample.points),
                "mape_percent": 100 * mape(ours, measured),
                "median_error_percent": 100 * float(np.median(np.abs(ours / measured - 1))),
                "in_interval_percent": 100 * getattr(validation.error, f"{metric}_coverage"),
                "plain_roofline_mape_percent": 100 * mape(getattr(plain, f"{metric}_s"), measured),
            }
        )
    return found


def _mean(name: str, metric: str, rows: list[Row]) -> Row:
    keys = [key for key in rows[0] if key not in {"held_back", "metric", "points"}]
    means = {key: float(np.mean([row[key] for row in rows])) for key in keys}
    return {"held_back": name, "metric": metric, "points": sum(row["points"] for row in rows), **means}
