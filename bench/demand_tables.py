"""Throughput tables and days of demand from formulas, the same on every machine.

The rate of a replica follows from the tokens per second that it prefills and decodes, with 5 % of lognormal noise so
that no two options are proportional.  The figures are round and measure no GPU: the benchmarks time the planner and
count its changes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply

Floats = npt.NDArray[np.float64]

INPUTS = (25, 100, 250, 500, 1000, 2000, 4000, 8000, 12000, 16000)
OUTPUTS = (25, 100, 250, 500, 1000, 2000)


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    price_usd_per_h: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    longest_tokens: float  # per GPU


KINDS = {
    kind.name: kind
    for kind in (
        Kind("small", 0.8, 4e3, 350, 4500),
        Kind("medium", 1.2, 6e3, 700, 9000),
        Kind("wide", 1.8, 16e3, 1100, 1e9),
        Kind("large", 2.2, 18e3, 2300, 1e9),
        Kind("fast", 3.6, 45e3, 4200, 1e9),
    )
}


def rates_of(kind: Kind, gpus: int, *, generator: np.random.Generator) -> tuple[float, ...]:
    """Requests per second that one replica holds, per bucket; 0 where its memory is too small."""
    inputs, outputs = _sizes()
    speed = gpus**0.9
    seconds = inputs / (kind.prefill_tokens_per_s * speed) + outputs / (kind.decode_tokens_per_s * speed)
    rates = np.exp(generator.normal(0, 0.05, len(inputs))) / seconds
    return tuple(np.where(inputs + outputs > kind.longest_tokens * gpus, 0.0, rates).tolist())


def shares(generator: np.random.Generator) -> Floats:
    """A histogram of request sizes: half a chat-like bump, half at random."""
    inputs, outputs = _sizes()
    bump = np.exp(-(((np.log(inputs) - 6.2) / 1.2) ** 2) - ((np.log(outputs) - 5.3) / 0.9) ** 2)
    return np.asarray(0.5 * bump / bump.sum() + 0.5 * generator.dirichlet(np.full(len(inputs), 0.5)))


def on_demand_mix(*, rate_rps: float, utilisation: float, seed: int) -> MixProblem:
    """Seven options, each replica hired by itself."""
    generator = np.random.default_rng(seed)
    ways = (("small", 1), ("medium", 1), ("wide", 1), ("large", 1), ("large", 2), ("fast", 1), ("fast", 2))
    names = [f"{kind} x{gpus}" for kind, gpus in ways]
    return MixProblem(
        loads=(Load("chat", tuple((rate_rps * shares(generator)).tolist()), utilisation=utilisation),),
        supplies=tuple(
            Supply(name, KINDS[kind].price_usd_per_h * gpus) for name, (kind, gpus) in zip(names, ways, strict=True)
        ),
        options=tuple(
            ReplicaOption(name, kind, f) for f, (name, (kind, _)) in enumerate(zip(names, ways, strict=True))
        ),
        routes=tuple(
            Route(name, 0, (Leg(o, rates_of(KINDS[kind], gpus, generator=generator)),))
            for o, (name, (kind, gpus)) in enumerate(zip(names, ways, strict=True))
        ),
    )


def day(periods: int, *, generator: np.random.Generator) -> Floats:
    """A day's shape with its highest value near 1: a quiet night, an afternoon, an evening, 3 % of noise."""
    hours = np.arange(periods) / periods * 24
    shape = 0.35 + 0.65 * np.exp(-(((hours - 14) / 4.5) ** 2)) + 0.1 * np.exp(-(((hours - 20) / 1.5) ** 2))
    return np.asarray(shape / shape.max() * np.exp(generator.normal(0, 0.03, periods)))


def _sizes() -> tuple[Floats, Floats]:
    inputs, outputs = np.meshgrid(np.array(INPUTS, dtype=float), np.array(OUTPUTS, dtype=float), indexing="ij")
    return inputs.ravel(), outputs.ravel()
