"""Demand rates of the public traces in windows, divided into traces to fit on and traces to report.

| trace | part | windows |
|---|---|---|
| Azure code 2023, requests/s and tokens/s (57 min) | fit | 30 s, 60 s |
| kv-cache-tester sessions, requests/s and tokens/s (124 h; starts of sessions are synthetic) | fit | 300 s |
| ServeGen m-large (14 days), and its 1st, 3rd, 5th ... largest client | fit | 600 s |
| Azure conversation 2023, Mooncake conversation (58 min) | report | 30 s, 60 s |
| Mooncake synthetic (17 min) | report | 30 s |
| ServeGen m-mid and m-small (14 days), and the 2nd, 6th, 8th ... largest client of m-large | report | 600 s |

ServeGen's public rates are means of 600 s.  Its 20 largest clients come with the variation of the gaps between
requests, so `modelled` draws renewal arrivals from them: shorter windows with the course of a real week.  The 4th
largest client is left out, because its rates nearly equal the 3rd's.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from bench.harness import text

Floats = npt.NDArray[np.float64]

CLIENTS = "servegen_m-large_top20_clients.csv.gz"
STEP_S = 600.0
MODELLED_DAYS = 7
DUPLICATE = 3  # position of the client with another client's rates
FIT, REPORT = "fit", "report"


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """`group` names series that are shown as one row."""

    group: str
    part: str
    window_s: float
    horizons_s: tuple[float, ...]
    rates: Floats


def demands(part: str) -> Iterator[Demand]:
    """Return the series of a part for which the public data is present."""
    yield from (each for each in _all(part) if each.part == part)


def _all(part: str) -> Iterator[Demand]:
    for name, of, windows in (
        ("Azure code", FIT, (30.0, 60.0)),
        ("kv-cache-tester", FIT, (300.0,)),
        ("Azure conversation", REPORT, (30.0, 60.0)),
        ("Mooncake conversation", REPORT, (30.0, 60.0)),
        ("Mooncake synthetic", REPORT, (30.0,)),
    ):
        arrivals = _arrivals(name) if of == part else None
        if arrivals is not None:
            at_s, tokens = arrivals
            for window_s in windows:
                horizons_s = (300.0, 900.0) if window_s == 300 else (60.0, 300.0)
                for unit, weights in (("requests", np.ones(len(at_s))), ("tokens", tokens)):
                    yield Demand(f"{name}, {unit}", of, window_s, horizons_s, _windows(at_s, weights, window_s))
    for size, of in (("large", FIT), ("mid", REPORT), ("small", REPORT)):
        if (table := text("power", f"servegen_m-{size}_rate_600s.csv.gz")) is not None:
            rates = np.array([float(row["total_rate_rps"]) for row in csv.DictReader(io.StringIO(table))])
            yield Demand(f"ServeGen m-{size}", of, STEP_S, (600.0, 1200.0), rates)
    yield from _clients()


def _arrivals(name: str) -> tuple[Floats, Floats] | None:
    """Return seconds since the first request, and input plus output tokens."""
    if name.startswith("Azure"):
        table = text("power", f"AzureLLMInferenceTrace_{'code' if 'code' in name else 'conv'}_2023.csv.gz")
        rows = list(csv.DictReader(io.StringIO(table or "")))
        at = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
        tokens = [float(row["ContextTokens"]) + float(row["GeneratedTokens"]) for row in rows]
    elif name == "Mooncake synthetic":
        rows = list(csv.DictReader(io.StringIO(text("power", "mooncake_synthetic_trace.csv.gz") or "")))
        at = [float(row["timestamp_ms"]) / 1e3 for row in rows]
        tokens = [float(row["input_length"]) + float(row["output_length"]) for row in rows]
    else:
        file = "kvct_fit" if name == "kv-cache-tester" else "mooncake_conversation"
        lines = [json.loads(line) for line in (text("serving", f"traces/{file}.jsonl.gz") or "").splitlines()]
        at = [float(line["time_s"]) for line in lines]
        tokens = [float(line["input_tokens"] + line["output_tokens"]) for line in lines]
    return (np.array(at) - at[0], np.array(tokens)) if at else None


def _windows(at_s: Floats, weights: Floats, window_s: float) -> Floats:
    """Return the rates of whole windows."""
    whole = int(at_s.max() // window_s)
    sums = np.bincount((at_s // window_s).astype(np.int64), weights=weights, minlength=whole)
    rates: Floats = sums[:whole] / window_s
    return rates


def client_steps(part: str) -> list[list[tuple[float, float]]]:
    """The rate and the variation of gaps in each step, for each client of a part."""
    table = text("power", CLIENTS)
    if table is None:
        return []
    clients: dict[str, list[tuple[float, float]]] = {}
    for row in csv.DictReader(io.StringIO(table)):
        clients.setdefault(row["client"], []).append((float(row["rate_rps"]), float(row["cv"] or 0)))
    return [steps for i, steps in enumerate(clients.values()) if i != DUPLICATE and (i % 2 == 0) == (part == FIT)]


def _clients() -> Iterator[Demand]:
    for part in (FIT, REPORT):
        if not (own := client_steps(part)):
            return
        for steps in own:
            yield Demand("ServeGen clients", part, STEP_S, (600.0, 1200.0), np.array([rate for rate, _ in steps]))
        rates = np.sum([modelled(steps[: MODELLED_DAYS * 144], seed=i) for i, steps in enumerate(own)], axis=0)
        yield Demand("ServeGen clients, modelled", part, 60.0, (60.0, 300.0, 900.0), rates.reshape(-1, 2).mean(axis=1))
        yield Demand("ServeGen clients, modelled", part, 300.0, (300.0, 900.0), rates.reshape(-1, 10).mean(axis=1))


def modelled(steps: list[tuple[float, float]], *, seed: int) -> Floats:
    """Return the rates in windows of 30 s of renewal arrivals, gamma gaps with each step's rate and variation."""
    generator, counts = np.random.default_rng(seed), np.zeros((len(steps), 20))
    for i, (rate, variation) in enumerate(steps):
        if rate > 0:
            shape = 1 / max(variation, 0.3) ** 2
            gaps = generator.gamma(shape, 1 / (rate * shape), int(1.5 * rate * STEP_S + 50))
            at_s = np.cumsum(gaps) - gaps[0] * generator.random()
            counts[i] = np.histogram(at_s, bins=20, range=(0.0, STEP_S))[0]
    return counts.ravel() / 30.0
