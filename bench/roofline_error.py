"""How far the roofline is from measured end-to-end points: `python -m bench.roofline_error silicon_sample.csv`.

The file is aiconfigurator's `silicon_sample.csv` (Apache-2.0, not part of this project): measured mean TTFT and TPOT of
a server that always holds `batch_size` requests of one size.  Compared are dense models in 16 bit on plain tensor
parallelism.  The 5 % and 95 % quantiles of measured / predicted rate are the band in `planner/error_bands.py`.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.performance import Coefficients, Replica, steady_state

GPU_OF_SYSTEM = {"h100_sxm": "H100-SXM", "gb200": "GB200", "b200_sxm": "B200", "h200_sxm": "H200-SXM"}
MODEL_OF_PATH = {"Qwen/Qwen3-32B": "Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct": "Llama-3.1-8B"}


@dataclass(frozen=True, slots=True)
class Ratios:
    """Measured over predicted, of one point."""

    rate: float
    tpot: float
    ttft: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One GPU type."""

    gpu: str
    points: int
    rate_low: float
    rate_median: float
    rate_high: float
    tpot_mape: float
    ttft_median: float


def main() -> None:
    """Print the table; write it as JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path, help="silicon_sample.csv")
    parser.add_argument("--json", type=Path, help="file to write the table to")
    arguments = parser.parse_args()
    with arguments.points.open(newline="", encoding="utf-8") as file:
        found = summaries(csv.DictReader(file))
    print(f"{'GPU':<10} {'points':>6} {'rate 5%':>8} {'median':>7} {'95%':>6} {'TPOT MAPE':>10} {'TTFT median':>12}")
    for row in found:
        print(
            f"{row.gpu:<10} {row.points:>6} {row.rate_low:>8.2f} {row.rate_median:>7.2f} {row.rate_high:>6.2f} "
            f"{row.tpot_mape:>10.1%} {row.ttft_median:>12.2f}"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in found], indent=2) + "\n", encoding="utf-8")


def summaries(rows: Iterable[Mapping[str, str]]) -> list[Summary]:
    """One line per GPU type among the points that can be compared."""
    by_gpu: dict[str, list[Ratios]] = defaultdict(list)
    for gpu, ratios in _compared(rows):
        by_gpu[gpu].append(ratios)
    return [_summary(gpu, ratios) for gpu, ratios in sorted(by_gpu.items())]


def _compared(rows: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, Ratios]]:
    for row in rows:
        model, gpu = MODEL_OF_PATH.get(row["model_path"]), GPU_OF_SYSTEM.get(row["system"])
        sixteen_bit = not row["precision"] and not row["gemm_quant_mode"]
        if model is None or gpu is None or not sixteen_bit or row["mode"] != "agg" or row["pp_size"] != "1":
            continue
        batch, inputs, outputs = int(row["batch_size"]), int(row["isl"]), int(row["osl"])
        coefficients = Coefficients(max_batch=batch)  # the server was told to take as many
        replica = Replica(builtin_models().get(model), builtin_gpus().get(gpu), int(row["tp_size"]), coefficients)
        if replica.largest_batch(inputs + outputs) == batch:
            yield gpu, _ratios(replica, row, batch=batch, input_tokens=inputs, output_tokens=outputs)


def _ratios(replica: Replica, row: Mapping[str, str], *, batch: int, input_tokens: int, output_tokens: int) -> Ratios:
    state = steady_state(replica, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)
    ttft_s, tpot_s = float(row["silicon_ttft_ms"]) / 1000, float(row["silicon_tpot_ms"]) / 1000
    rate_rps = batch / (ttft_s + (output_tokens - 1) * tpot_s)
    return Ratios(rate=rate_rps / state.rate_rps, tpot=tpot_s / state.tpot_s, ttft=ttft_s / state.ttft_s)


def _summary(gpu: str, ratios: list[Ratios]) -> Summary:
    rates = np.array([ratio.rate for ratio in ratios])
    low, median, high = np.quantile(rates, (0.05, 0.5, 0.95))
    tpot_error = np.mean([abs(1 / ratio.tpot - 1) for ratio in ratios])
    ttft_median = np.median([ratio.ttft for ratio in ratios])
    return Summary(gpu, len(ratios), float(low), float(median), float(high), float(tpot_error), float(ttft_median))


if __name__ == "__main__":
    main()
