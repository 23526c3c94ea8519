"""What is proven about small cases: the searches beside the integer programs, and MoETuner's two steps.

`balance` rows: a few layers of each size, one program per layer under `LIMIT_S`.  `equal` counts layers where the
search (`placement.balance`, `placement.joint`) is within a millionth of the program's answer, `proven` those whose
optimum is known; `gap` is what the worst layer may still be from its optimum.  The search's time is the processor's,
after warm-up; the program's is by the clock, as its limit is.

`two steps` rows: Mixtral's shape on 4 GPUs of 2 nodes.  Experts in the order of their numbers are what MoETuner
(arXiv 2502.06643) compares with.  Tokens from each expert to each of the next layer are drawn: no table of them is
published.  Every expert has `SUCCESSORS` experts that follow it `BONUS` times as often as chance has it.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.expert_loads import synthetic
from fleet.solvers import Limits, SolveStatus
from placement.arrays import Floats, Ints
from placement.exact import Objective, assigned, clusters, heuristic, loads_of, most_even
from placement.exact.exchange import Exchange, Held, exchange_times_s, tails_s
from placement.imbalance import imbalance
from placement.layout import Layout

LIMIT_S = 5.0  # per layer
LAYERS = 4
SAME = 2e-6
EIGHT = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])  # the example of vLLM's FlashLB proposal

MIXTURE_GPUS, MIXTURE_NODES = 4, 2
INSIDE_GB_PER_S, BETWEEN_GB_PER_S = 450.0, 50.0  # one direction: NVLink of an H100, a network card of 400 Gb/s
TOKEN_BYTES = 8192.0  # 4096 channels in 16 bit
SUCCESSORS, BONUS = 2, 4.0
TWO_STEPS_LIMIT_S = 20.0
MOETUNER_GAP = 0.005  # a fifth of its tolerance


@dataclass(frozen=True, eq=False)
class Small:
    """A size at which something can be proven."""

    name: str
    tokens: Floats
    slots: int
    gpus: int


def run() -> list[dict[str, Any]]:
    """Both kinds of rows."""
    return [*map(_balance_row, smalls()), *two_steps()]


def smalls() -> list[Small]:
    """By rising size."""
    eight, many = synthetic("mixtral-8x7b").tokens[:LAYERS], synthetic("olmoe-1b-7b").tokens[:LAYERS]
    return [
        Small("published example", EIGHT, 16, 8),
        Small("8 experts", eight, 8, 4),
        Small("8 experts, half as many copies", eight, 12, 4),
        Small("8 experts, each twice", eight, 16, 8),
        Small("12 experts, a third more", many[:, :12].copy(), 16, 4),
        Small("16 experts", many[:, :16].copy(), 16, 4),
        Small("16 experts, 2 slots per GPU", many[:, :16].copy(), 20, 10),
        Small("32 experts", many[:, :32].copy(), 32, 4),
        Small("32 experts, a quarter more", many[:, :32].copy(), 40, 8),
        Small("64 experts, an eighth more", many, 72, 8),
    ]


def _balance_row(small: Small) -> dict[str, Any]:
    layout = Layout.even(slots=small.slots, gpus=small.gpus, nodes=1)
    searched = heuristic(small.tokens, layout=layout)
    found = imbalance(searched, small.tokens, layout=layout).per_layer
    layers, seconds = [], []
    for layer, tokens in enumerate(small.tokens):
        started_s = time.perf_counter()
        exact = most_even(
            tokens[None], layout=layout, limits=Limits(time_limit_s=LIMIT_S), start=searched[layer : layer + 1]
        )
        seconds.append(time.perf_counter() - started_s)
        layers.append(exact.layers[0])
    values = np.array([layer.value for layer in layers])
    return {
        "case": small.name,
        "experts": small.tokens.shape[1],
        "slots": small.slots,
        "gpus": small.gpus,
        "layers": len(small.tokens),
        "search_imbalance": float(found.mean()),
        "ilp_imbalance": float(values.mean()),
        "bound": float(np.mean([layer.bound for layer in layers])),
        "gap": max(layer.gap for layer in layers),
        "equal": int((found <= values * (1 + SAME)).sum()),
        "proven": sum(layer.status is SolveStatus.OPTIMAL for layer in layers),
        "search_ms": 1000 * _cpu_s(lambda: heuristic(small.tokens, layout=layout)),
        "ilp_median_s": statistics.median(seconds),
    }


def _cpu_s(call: Callable[[], object], repeats: int = 5) -> float:
    """Median of the processor's seconds."""
    times = []
    for _ in range(repeats):
        started_s = time.process_time()
        call()
        times.append(time.process_time() - started_s)
    return statistics.median(times)


def two_steps() -> list[dict[str, Any]]:
    """Contiguous experts, MoETuner's clusters by its objective and by the busiest GPU, and half as many copies more."""
    tokens = synthetic("mixtral-8x7b").tokens
    routing = followed(tokens, seed=0)
    ways: dict[str, Callable[[Floats], Held]] = {
        "contiguous": _contiguous,
        "MoETuner": lambda loads: _clustered(loads, Objective.DEVIATION),
        "MoETuner by the busiest GPU": lambda loads: _clustered(loads, Objective.PEAK),
        "half as many copies more": _copied,
    }
    rows = []
    for name, way in ways.items():
        started_s = time.perf_counter()
        held = way(tokens)
        rows.append(_two_steps_row(name, held, tokens, routing, time.perf_counter() - started_s))
    return [row | {"tails_less": 1 - row["tails_ms"] / rows[0]["tails_ms"]} for row in rows]


def _contiguous(tokens: Floats) -> Held:
    row = (np.arange(8) // 2)[None, :, None] == np.arange(MIXTURE_GPUS)
    return np.broadcast_to(row, (len(tokens), 8, MIXTURE_GPUS)).copy()


def _clustered(tokens: Floats, objective: Objective) -> Held:
    return clusters(tokens, gpus=MIXTURE_GPUS, objective=objective, limits=Limits(time_limit_s=TWO_STEPS_LIMIT_S)).held


def _copied(tokens: Floats) -> Held:
    layout = Layout.even(slots=12, gpus=MIXTURE_GPUS, nodes=MIXTURE_NODES)
    placed = most_even(tokens, layout=layout, limits=Limits(time_limit_s=TWO_STEPS_LIMIT_S)).expert_of_slot
    held = np.zeros((len(tokens), 8, MIXTURE_GPUS), dtype=np.bool_)
    np.put_along_axis(held.transpose(0, 2, 1), placed.reshape(len(tokens), MIXTURE_GPUS, 3), values=True, axis=2)
    return held


def followed(tokens: Floats, *, seed: int) -> Floats:
    """[layers - 1, experts, experts]: tokens from each expert to each of the next layer, with these loads as sums."""
    layers, experts = tokens.shape
    rng = np.random.default_rng(seed)
    routing = np.ones((layers - 1, experts, experts))
    for layer in range(layers - 1):
        for expert in range(experts):
            routing[layer, expert, rng.choice(experts, SUCCESSORS, replace=False)] = BONUS
    for _ in range(50):  # rows and columns in turn (Sinkhorn, 1964)
        routing *= (tokens[:-1] / routing.sum(axis=2))[:, :, None]
        routing *= (tokens[1:] / routing.sum(axis=1))[:, None, :]
    return routing


def _two_steps_row(name: str, held: Held, tokens: Floats, routing: Floats, clustering_s: float) -> dict[str, Any]:
    bandwidth, loads = links(), loads_of(held, tokens)
    row = {
        "case": f"two steps: {name}",
        "experts": held.shape[1],
        "slots": int(held.sum()) // len(held),
        "gpus": held.shape[2],
        "layers": len(held),
        "ilp_imbalance": float((loads.max(axis=1) / loads.mean(axis=1)).mean()),
        "worst_share": float((loads.max(axis=1) / loads.sum(axis=1)).max()),
    }
    if name == "contiguous":  # as it is, and not as it might be assigned
        return row | {"tails_ms": 1000 * as_it_is_s(held, routing, bandwidth)}
    limits = Limits(time_limit_s=TWO_STEPS_LIMIT_S, relative_gap=MOETUNER_GAP)
    started_s = time.perf_counter()
    found = assigned(held, routing, token_bytes=TOKEN_BYTES, bandwidth_gb_per_s=bandwidth, limits=limits)
    return row | {
        "tails_ms": 1000 * found.proof.value,
        "tails_bound_ms": 1000 * found.proof.bound,
        "gap": found.proof.gap,
        "clustering_s": clustering_s,
        "assigning_s": time.perf_counter() - started_s,
    }


def links() -> Floats:
    """[GPUs, GPUs]: GB/s from each to each."""
    node: Ints = np.arange(MIXTURE_GPUS) * MIXTURE_NODES // MIXTURE_GPUS
    return np.where(node[:, None] == node[None, :], INSIDE_GB_PER_S, BETWEEN_GB_PER_S)


def as_it_is_s(held: Held, routing: Floats, bandwidth: Floats) -> float:
    """All exchanges of clusters that lie on the GPUs of their numbers."""
    times_s = exchange_times_s(held, routing, token_bytes=TOKEN_BYTES, bandwidth_gb_per_s=bandwidth)
    exchange = Exchange(times_s, held.sum(axis=1), copies_of_gpu=int(held.sum()), alike=False)
    return float(tails_s(exchange, np.tile(np.arange(held.shape[2]), (len(held), 1))).sum())
