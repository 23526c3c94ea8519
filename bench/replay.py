"""How long a replay of a day takes on one core: `python -m bench replay`.

The day is the Azure conversation trace of 2023 repeated (Splitwise, ISCA'24; CC-BY) at its own rate, an hour of it at
100 requests per second, and a day of the code trace.  The files are no part of this project: they are looked for in the
folder named by FLEETWRIGHT_POWER_DATA and beside the checkout; without them a synthetic day of that rate is replayed.
Costs are those of a dense 8B model on one H100, rounded.  Wall times are medians and leave compiling out, which is
measured in processes of their own: once with an empty cache, once with what the first left there.
"""

import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fleet.demand import DemandSeries
from fleet.sizes.histogram import SizeBuckets
from fleet.traces import read_trace
from planner.performance.steps import StepCosts
from planner.replay import Balancing, ReplayPool, Routing, Stream, replay, synthetic_arrivals

RUNS = 3
SEED = 7
EDGES = {"input_edges": (512, 2048, 16384), "output_edges": (128, 512, 2048)}
PLACES = (os.environ.get("FLEETWRIGHT_POWER_DATA"), Path(__file__).parents[2] / "shared" / "data" / "power")
TRACES = {"conversation": "AzureLLMInferenceTrace_conv_2023.csv.gz", "code": "AzureLLMInferenceTrace_code_2023.csv.gz"}
NOTHING: dict[str, Any] = dict.fromkeys((field.name for field in fields(StepCosts)), 0.0)
H100 = StepCosts(
    **{
        **NOTHING,
        "fixed_s": 2e-3,
        "weights_s": 5e-3,
        "token_s": 3.2e-5,
        "cached_token_s": 4.9e-8,
        "pair_s": 1e-10,
        "sequence_s": 1e-5,
        "request_s": 2e-3,
        "cache_tokens": 400_000,
        "max_sequences": 256,
        "chunk_tokens": 2048,
    }
)
COMPILE = (
    "import planner.replay, time; t = time.perf_counter(); import planner.replay.kernel; print(time.perf_counter() - t)"
)


def run() -> list[dict[str, Any]]:
    cold_s, warm_s = _compile_s()
    return [
        {"trace": name, **row, "compile_s": cold_s, "load_compiled_s": warm_s}
        for name, stream, replicas in _days()
        for row in _rows(stream, replicas)
    ]


def _days() -> Iterator[tuple[str, Stream, int]]:
    """Name, requests, and replicas that keep up with them."""
    hours = {name: _hour(file) for name, file in TRACES.items()}
    chat, code = hours["conversation"], hours["code"]
    if chat is None or code is None:
        yield "synthetic, a day at 5.53/s", _synthetic_day(), 3
        return
    yield "conversation, a day at 5.53/s", chat.repeated(hours=24), 3
    yield "conversation, an hour at 100/s", chat.at_rate(100.0, hours=1), 40
    yield "code, a day at 2.57/s", code.repeated(hours=24), 2


def _rows(stream: Stream, replicas: int) -> Iterator[dict[str, Any]]:
    buckets = SizeBuckets.from_requests(input_tokens=stream.input_tokens, output_tokens=stream.output_tokens, **EDGES)
    routing: Routing = {
        f"{row}x{column}": {"H100": 1.0} for row in EDGES["input_edges"] for column in EDGES["output_edges"]
    }
    pools = [ReplayPool("H100", replicas, H100)]
    for balancing in Balancing:
        (used,) = replay(stream, pools, routing, buckets, seed=SEED, balancing=balancing).pools  # compiles where needed
        seconds = []
        for _ in range(RUNS):
            started_s = time.perf_counter()
            (used,) = replay(stream, pools, routing, buckets, seed=SEED, balancing=balancing).pools
            seconds.append(time.perf_counter() - started_s)
        wall_s = statistics.median(seconds)
        yield {
            "balancing": balancing.value,
            "replicas": replicas,
            "requests": stream.requests,
            "simulated_h": stream.duration_s / 3600,
            "wall_s": wall_s,
            "requests_per_s": stream.requests / wall_s,
            "iterations_per_s": used.iterations / wall_s,
            "busy": used.busy,
        }


def _hour(file: str) -> Stream | None:
    for place in PLACES:
        if place is not None and (path := Path(place) / file).is_file():
            return Stream.of_trace(read_trace(gzip.decompress(path.read_bytes()).decode(), name=file))
    return None


def _synthetic_day() -> Stream:
    """Mean sizes near those of the conversation trace."""
    sizes = SizeBuckets(input_tokens=(1024, 4096), output_tokens=(256, 1024), share=((0.45, 0.15), (0.3, 0.1)))
    demand = DemandSeries.constant(5.53, duration_s=86_400.0)
    return synthetic_arrivals(sizes, demand, rng=np.random.default_rng(SEED), cv=1.5)


def _compile_s() -> tuple[float, float]:
    """With nothing cached, and with what that left behind."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        first, second = (
            subprocess.run([sys.executable, "-c", COMPILE], check=True, capture_output=True, env=environment)
            for _ in range(2)
        )
    return float(first.stdout), float(second.stdout)
