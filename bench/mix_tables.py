"""The instances that the mix benchmarks solve: throughput tables x ways to expand them x workloads x rates.

Tables.  `roofline`: six GPUs of the catalogue at TP 2, 4 and 8 for Llama-3.1-70B, and nine GPUs at TP 1 for
Llama-3.1-8B, by `planner.performance`, mean TTFT at most 3 s and mean TPOT at most 120 or 40 ms, on ten input sizes x
six output sizes.  `silicon`: the same grid from measured kernels (aiconfigurator 0.12.0), where those files are at
hand.  `aibrix`: AIBrix's simulated A100 and A40 tables (their prices of 1.00 and 0.79 and their own grid).  Prices per
GPU are the cheapest on-demand ones of the shipped sheet.

Expansion to 70 options, going round the tables.  `prices`: the same tables again and again, each time at a price of its
own (x 0.8 to 1.25), all without a limit.  `offers`: the same with stock, the cheaper the fewer (price x 1.00, 0.70,
0.80, 0.90, 1.15 with stock unlimited, 2, 4, 16, unlimited; from the sixth on 1 % dearer each).  `kinds`: tables that
truly differ: every rate times a factor of its own (lognormal, 0.10) and one per kind (0.15), price times a factor
(0.20): half of them are dominated by no other.  Prices are in cents.

Workloads.  Lognormal token counts; `chat`: medians of 100 in and 150 out, `long`: 3,000 and 200, `mixed`: 80 % chat; of
each, 1 % spread evenly over all buckets, so that each has demand.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import erf, log, sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.demand_tables import INPUTS, OUTPUTS
from bench.harness import SHARED_DATA
from bench.roofline import grid_rates
from fleet.offers import Market, builtin_prices
from fleet.slo import LatencyLimits, Slo
from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply

DATA = SHARED_DATA / "planner"
RATES_RPS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
TPOT_MS = (120, 40)
TTFT_MS = 3000.0
LARGE_GPUS = ("A100-80GB-SXM", "H100-SXM", "H200-SXM", "B200", "MI300X", "B300")
SMALL_GPUS = ("L4", "A10G", "L40S", "A100-80GB-PCIe", "H100-PCIe", "H100-SXM", "H200-SXM", "RTX-PRO-6000", "B200")
GPU_OF_SYSTEM = {"l40s": "L40S", "a100_sxm": "A100-80GB-SXM", "h100_sxm": "H100-SXM", "h200_sxm": "H200-SXM"}
OPTIONS = 70
OFFERS = ((1.00, None), (0.70, 2), (0.80, 4), (0.90, 16), (1.15, None))
CHAT = ((100, 1.0), (150, 0.9))  # median and deviation of the logarithm of input tokens, of output tokens
LONG = ((3000, 0.6), (200, 0.5))
CHAT_SHARES = (1.0, 0.0, 0.8)  # of the workloads
ANY_SIZE = 0.01


@dataclass(frozen=True, slots=True)
class Table:
    """One way to run a replica: its price and the highest rate per bucket."""

    name: str
    gpu: str
    price_usd_per_h: float
    max_rps: tuple[float, ...]
    available: int | None = None


@dataclass(frozen=True, slots=True)
class Tables:
    """Options over one grid of request sizes."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: tuple[Table, ...]


def instances(expansion: str) -> Iterator[MixProblem]:
    """Every table, expanded as described above, with every workload at every rate."""
    for base in _base_tables():
        tables = _expanded(base, expansion)
        for chat in CHAT_SHARES:
            shares = _workload_shares(chat, tables)
            for rate_rps in RATES_RPS:
                yield _problem(tables, shares=shares, rate_rps=rate_rps)


def _workload_shares(chat: float, tables: Tables) -> npt.NDArray[np.float64]:
    """The histogram of a workload over the tables' grid.  Sizes that no option can serve do not occur."""
    shares = chat * _lognormal(tables, *CHAT) + (1 - chat) * _lognormal(tables, *LONG)
    shares = (1 - ANY_SIZE) * shares + ANY_SIZE / len(shares)
    servable = np.max([option.max_rps for option in tables.options], axis=0) > 0
    shares = np.where(servable, shares, 0.0)
    return np.asarray(shares / shares.sum())


def _lognormal(tables: Tables, inputs: tuple[float, float], outputs: tuple[float, float]) -> npt.NDArray[np.float64]:
    """Share per bucket, the last edges also holding what is longer."""
    return np.outer(_between(tables.inputs, *inputs), _between(tables.outputs, *outputs)).ravel()


def _problem(tables: Tables, *, shares: npt.NDArray[np.float64], rate_rps: float) -> MixProblem:
    """One workload over these tables; options are given outright, each its own supply."""
    kinds = tables.options
    return MixProblem(
        loads=(Load("w", tuple(float(rate_rps * share) for share in shares)),),
        supplies=tuple(Supply(t.name, t.price_usd_per_h, available=t.available) for t in kinds),
        options=tuple(ReplicaOption(t.name, t.gpu, o) for o, t in enumerate(kinds)),
        routes=tuple(Route(t.name, 0, (Leg(o, t.max_rps),)) for o, t in enumerate(kinds)),
    )


def _expanded(tables: Tables, expansion: str) -> Tables:
    """`prices`, `offers` or `kinds`, as described above; the same each time."""
    generator = np.random.default_rng(7)
    turns = [(tables.options[i % len(tables.options)], i // len(tables.options)) for i in range(OPTIONS)]
    if expansion == "prices":
        return replace(tables, options=tuple(_priced(table, turn, generator) for table, turn in turns))
    if expansion == "offers":
        return replace(tables, options=tuple(_offer(table, turn) for table, turn in turns))
    return replace(tables, options=tuple(_kind(table, turn, generator) for table, turn in turns))


@cache
def _base_tables() -> tuple[Tables, ...]:
    """Those of the roofline, and those of the files where there are any."""
    found = [_roofline("Llama-3.1-70B", LARGE_GPUS, (2, 4, 8), tpot_ms) for tpot_ms in TPOT_MS]
    found += [_roofline("Llama-3.1-8B", SMALL_GPUS, (1,), tpot_ms) for tpot_ms in TPOT_MS]
    for path in sorted((DATA / "derived").glob("aic_*_tputs.json")):
        found += [_silicon(path, tpot_ms) for tpot_ms in TPOT_MS]
    simulated = [DATA / "aibrix" / f"simulator-llama2-7b-{gpu}.json" for gpu in ("a100", "a40")]
    if all(path.exists() for path in simulated):
        found.append(_aibrix(simulated))
    return tuple(found)


def _roofline(model: str, gpus: Sequence[str], degrees: Sequence[int], tpot_ms: int) -> Tables:
    slo = Slo(ttft_ms=LatencyLimits(mean=TTFT_MS), tpot_ms=LatencyLimits(mean=tpot_ms))
    options = []
    for gpu in gpus:
        for tp in degrees:
            rates = grid_rates(model, gpu, tp, slo, inputs=INPUTS, outputs=OUTPUTS)
            if any(rates):
                options.append(Table(f"{gpu}/tp{tp}", gpu, round(tp * cheapest_usd_per_h(gpu), 2), rates))
    return Tables(f"roofline {model} {tpot_ms} ms", INPUTS, OUTPUTS, tuple(options))


def _silicon(path: Path, tpot_ms: int) -> Tables:
    document = json.loads(path.read_text(encoding="utf-8"))
    options = []
    for name, entry in document["tables"].items():
        rates = tuple(float(rate) for row in entry["tputs"][str(tpot_ms)] for rate in row)
        if any(rates):
            gpu = GPU_OF_SYSTEM.get(entry["system"], "B200")
            options.append(Table(name, gpu, round(entry["tp"] * cheapest_usd_per_h(gpu), 2), rates))
    model = document["model"].rpartition("/")[2]
    return Tables(
        f"silicon {model} {tpot_ms} ms", tuple(document["inputs"]), tuple(document["outputs"]), tuple(options)
    )


def _aibrix(paths: Sequence[Path]) -> Tables:
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    options = []
    for price, document in zip((1.00, 0.79), documents, strict=True):
        rates = tuple(float(rate) for row in document["tputs"] for rate in row)
        options.append(Table(document["gpu"], "A100-80GB-SXM", price, rates))
    inputs, outputs = (tuple(int(size) for size in axis) for axis in documents[0]["indexes"])
    rows, columns = np.shape(documents[0]["tputs"])
    if (len(inputs), len(outputs)) != (rows, columns):  # the files name the axes in either order
        inputs, outputs = outputs, inputs
    return Tables("aibrix Llama-2-7B", inputs, outputs, tuple(options))


def _priced(table: Table, turn: int, generator: np.random.Generator) -> Table:
    price_usd_per_h = max(0.01, round(table.price_usd_per_h * generator.uniform(0.8, 1.25), 2))
    return replace(table, name=f"{table.name} price {turn}", price_usd_per_h=price_usd_per_h)


def _offer(table: Table, turn: int) -> Table:
    factor, available = OFFERS[turn] if turn < len(OFFERS) else (1.15 + 0.01 * (turn - len(OFFERS) + 1), None)
    price_usd_per_h = max(0.01, round(factor * table.price_usd_per_h, 2))
    return replace(table, name=f"{table.name} offer {turn}", price_usd_per_h=price_usd_per_h, available=available)


def _kind(table: Table, turn: int, generator: np.random.Generator) -> Table:
    factors = generator.lognormal(0, 0.15) * generator.lognormal(0, 0.10, len(table.max_rps))
    price_usd_per_h = max(0.01, round(table.price_usd_per_h * generator.lognormal(0, 0.20), 2))
    rates = tuple(float(rate) for rate in factors * np.array(table.max_rps))
    return replace(table, name=f"{table.name} kind {turn}", price_usd_per_h=price_usd_per_h, max_rps=rates)


def cheapest_usd_per_h(gpu: str) -> float:
    """The cheapest on-demand price of a GPU in the shipped sheet."""
    offers = (offer for offer in builtin_prices().offers if offer.gpu == gpu and offer.market is Market.ON_DEMAND)
    return min(offer.price_usd_per_gpu_h for offer in offers)


def _between(edges: Sequence[int], median: float, sigma: float) -> npt.NDArray[np.float64]:
    below = [0.5 * (1 + erf((log(edge) - log(median)) / (sigma * sqrt(2)))) for edge in edges[:-1]]
    return np.diff([0.0, *below, 1.0])
