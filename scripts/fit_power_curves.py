"""Fit the shares of power/data/curves.yaml on public measurements, and print them.

python -m scripts.fit_power_curves FOLDER

FOLDER holds the ML.ENERGY leaderboard (average power of serving engines) and Zeus's sweeps of training time and power
against power limits, under the names below.  Method and sources are in docs/power-curves.md.
"""

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

SERVING = "mlenergy_leaderboard_v3_configs.csv.gz"
TRAINING = {"zeus_nsdi23_summary_power_v100.csv.gz": 250.0, "zeus_nsdi23_summary_power_a40.csv.gz": 300.0}  # full limit
TDP_W = {"H100": 700.0, "B200": 1000.0}
IDLE_SHARE = {"H100": 75 / 700, "B200": 0.13}  # splitwise-sim's H100; B200: the mean over H100 and A100
FEWEST_POINTS = 3  # of a family: a curve needs more than its two ends
COMPUTE_BOUND = 0.85  # share of the limit that a training job draws unlimited, for its limit to be a limit at all
# POLCA (arXiv 2308.12908): inference on A100 at 1110 of 1410 MHz loses at most 7 % of performance.
POLCA_CLOCK, POLCA_SPEED = 1110 / 1410, 0.93

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration of a serving engine: output rate, and GPU power as a share of TDP."""

    rate: float
    share: float


def main(arguments: Sequence[str]) -> int:
    """Print every coefficient with its spread."""
    if len(arguments) != 1 or not (folder := Path(arguments[0])).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    pooled: list[float] = []
    for gpu in TDP_W:
        families = serving_families(rows(folder / SERVING), gpu)
        busy = [max(family, key=lambda point: point.rate).share for family in families]
        pooled += busy
        print(f"{gpu}: busy_share {spread(busy)} of {len(busy)} families")
        exponent, ratios = load_exponent(families, IDLE_SHARE[gpu])
        print(f"{gpu}: load_exponent {exponent:.2f}; measured/fitted {spread(ratios)} of {len(ratios)} points")
    print(f"all: busy_share {spread(pooled)} of {len(pooled)} families")
    speeds, shares = cap_sweep(folder)
    floor, exponent, ratios = clock_curve(clocks_of(speeds), shares)
    print(f"clock: floor_share {floor:.2f}, exponent {exponent:.2f}; measured/fitted {spread(ratios)} of {len(shares)}")
    return 0


def rows(path: Path) -> list[dict[str, str]]:
    """A gzipped CSV file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def serving_families(table: Sequence[dict[str, str]], gpu: str) -> list[list[Point]]:
    """Configurations alike but for their batch limit, those with enough of them."""
    families: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    alike = ("task", "model_id", "num_gpus", "tensor_parallel", "expert_parallel", "data_parallel", "weight_precision")
    for row in table:
        if row["gpu_model"] == gpu and row["avg_batch_size"] and row["output_throughput_tokens_per_sec"]:
            share = float(row["avg_power_watts"]) / float(row["num_gpus"]) / TDP_W[gpu]
            key = tuple(row.get(column) or "" for column in alike)
            families[key].append(Point(float(row["output_throughput_tokens_per_sec"]), share))
    return [family for family in families.values() if len(family) >= FEWEST_POINTS]


def load_exponent(families: Sequence[Sequence[Point]], idle_share: float) -> tuple[float, Array]:
    """`g` of idle + (busy - idle) * load^g with the least squares, load and busy taken within each family."""
    tops = [max(family, key=lambda point: point.rate) for family in families]
    pairs = [(point, top) for family, top in zip(families, tops, strict=True) for point in family]
    load = np.array([point.rate / top.rate for point, top in pairs])
    share, busy = np.array([point.share for point, _ in pairs]), np.array([top.share for _, top in pairs])

    def ratios(exponent: float) -> Array:
        return np.asarray(share / (idle_share + (busy - idle_share) * load**exponent))

    best = min(np.arange(0.02, 1.0, 0.01), key=lambda exponent: float(np.sum((ratios(exponent) - 1) ** 2)))
    return float(best), ratios(float(best))


def cap_sweep(folder: Path) -> tuple[Array, Array]:
    """(speed, power), each over its own at the full limit, of training jobs that draw nearly the full limit."""
    found = [pair for name, limit_w in TRAINING.items() for pair in _sweep(rows(folder / name), limit_w)]
    return np.array([speed for speed, _ in found]), np.array([power for _, power in found])


def _sweep(table: Sequence[dict[str, str]], limit_w: float) -> Iterator[tuple[float, float]]:
    jobs: dict[tuple[str, ...], dict[float, tuple[float, float]]] = defaultdict(dict)
    for row in table:
        key = tuple(row[column] for column in ("dataset", "network", "batch_size", "optimizer"))
        jobs[key][float(row["power_limit"])] = float(row["time_per_epoch"]), float(row["average_power"])
    for levels in jobs.values():
        if limit_w in levels and levels[limit_w][1] > COMPUTE_BOUND * limit_w:
            full_s, full_w = levels[limit_w]
            yield from ((full_s / time_s, power_w / full_w) for time_s, power_w in levels.values())


def clocks_of(speeds: Array) -> Array:
    """Speed to clock: time = 1 + k * (1 / clock - 1), with `k` such that POLCA's point lies on it."""
    sensitivity = (1 / POLCA_SPEED - 1) / (1 / POLCA_CLOCK - 1)
    return np.asarray(1 / (1 + np.maximum(0.0, 1 / speeds - 1) / sensitivity))


def clock_curve(clocks: Array, shares: Array) -> tuple[float, float, Array]:
    """`f`, `a` of share = f + (1 - f) * clock^a with the least squares."""

    def ratios(floor: float, exponent: float) -> Array:
        return np.asarray(shares / (floor + (1 - floor) * clocks**exponent))

    grid = ((floor, exponent) for floor in np.arange(0.0, 0.7, 0.01) for exponent in np.arange(0.5, 4.0, 0.05))
    floor, exponent = min(grid, key=lambda pair: float(np.sum((ratios(*pair) - 1) ** 2)))
    return float(floor), float(exponent), ratios(float(floor), float(exponent))


def spread(values: Sequence[float] | Array) -> str:
    """5 %, 50 % and 95 %, as the data file has them."""
    low, mid, high = np.percentile(np.asarray(values), [5, 50, 95])
    return written(low, mid, high)


def written(low: float, mid: float, high: float) -> str:
    """A spread in YAML."""
    return f"{{low: {low:.2f}, mid: {mid:.2f}, high: {high:.2f}}}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
