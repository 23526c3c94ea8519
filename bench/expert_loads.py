"""Tokens per layer and expert: recordings if present, else drawn with the recordings' published skews.

Recordings: DeepSeek-V3 on 96 GPUs by the SGLang team (SGLang issue 6017, May 2025); rows 3 to 60 of 61 are MoE layers.
The recordings are not part of this project; without them the same names give synthetic loads of the same shape.

The generator, with E experts, rank r from 1 and x = the depth of r in the colder half, from 0 to 1:

    load(r) ~ (r + HEAD)^-(slope / flattening) * exp(-TAIL x^2) * noise,    slope ~ normal(mean, deviation), cut

`flattening` is the effect of HEAD on the slope that a fit to the hotter half gives, so `slope` is the measured slope.
A normal score decides which expert has which rank: one part per group (hot groups make hierarchical placement uneven),
one per expert.  The scores of a recording mix three of them by prompt length and phase, which gives the measured rank
correlations (0.89 from 512 to 4096 tokens, 0.7 from prefill to decode).  HEAD, TAIL and GROUP_PART are fitted to the
recordings: load of the hottest expert, loads at ranks 128 and 192, load of the hottest of 8 groups.
"""

import json
import math
import zlib
from dataclasses import dataclass

import numpy as np

from bench.harness import found
from placement.arrays import Floats

FOLDER = "sglang_dsv3_expert_stats"
DENSE_LAYERS = 3  # of DeepSeek-V3; the recordings hold zeros for them
TOKENS = 2.0**26  # expert choices per layer, as in the recordings of one prompt length
HEAD, TAIL, NOISE = 3.0, 0.9, 0.05
GROUPS, GROUP_PART = 8, 0.4  # of DeepSeek-V3's routing; the part of a score's variance that its group has


@dataclass(frozen=True)
class Slopes:
    """Of log load over log rank among a layer's hotter half: over layers."""

    mean: float
    deviation: float = 0.08
    least: float = 0.27
    most: float = 0.92


@dataclass(frozen=True)
class Shape:
    layers: int
    experts: int


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    tokens: Floats  # [layers, experts]
    recorded: bool = False

    @property
    def source(self) -> str:
        return "recorded" if self.recorded else "synthetic"


SYNTHETIC_SLOPES = Slopes(0.48)
SHAPES = {
    "deepseek-v3": Shape(58, 256),
    "qwen3-235b": Shape(94, 128),
    "qwen3-30b": Shape(48, 128),
    "deepseek-moe-16b": Shape(27, 64),
    "olmoe-1b-7b": Shape(16, 64),
    "mixtral-8x7b": Shape(32, 8),
}

# Mean slope as published with the recordings, and how much of the three scores each recording holds.
_RECORDINGS = {
    "prefill_in512": (0.432, (1.0, 0.0, 0.0)),
    "prefill_in1024": (0.478, (0.97, 0.24, 0.0)),
    "prefill_in2048": (0.529, (0.92, 0.39, 0.0)),
    "prefill_in4096": (0.577, (0.89, 0.46, 0.0)),
    "prefill_in500out1500": (0.423, (1.0, 0.0, 0.0)),
    "prefill_in1000out1000": (0.471, (0.97, 0.24, 0.0)),
    "prefill_in1800out100": (0.516, (0.93, 0.37, 0.0)),
    "prefill_in2000out100": (0.525, (0.92, 0.39, 0.0)),
    "decode_in500out1500": (0.479, (0.64, 0.33, 0.69)),
    "decode_in1000out1000": (0.464, (0.66, 0.34, 0.67)),
    "decode_in1800out100": (0.468, (0.79, 0.41, 0.46)),
    "decode_in2000out100": (0.476, (0.79, 0.41, 0.46)),
}
NAMES = tuple(_RECORDINGS)
PREFILL_LENGTHS = NAMES[:4]  # one workload whose prompts grow


def named(name: str) -> Case:
    """Return one recording, or its substitute if it is absent."""
    path = found("placement", f"{FOLDER}/{name}.json")
    if path is None:
        return stand_in(name)
    counts = np.array(json.loads(path.read_text())["logical_count"], dtype=np.float64)
    return Case(name, np.ascontiguousarray(counts[DENSE_LAYERS:]), recorded=True)


def stand_in(name: str, *, seed: int = 0) -> Case:
    """Synthetic loads for a recording's name; those of one seed are of one model, as the recordings are."""
    mean, parts = _RECORDINGS[name]
    shape = SHAPES["deepseek-v3"]
    rng = np.random.default_rng(seed)
    scores = np.stack([_scores(shape, rng) for _ in parts])
    steepness = rng.standard_normal(shape.layers)
    noise = np.random.default_rng([seed, zlib.crc32(name.encode())])
    slopes = Slopes(mean, deviation=mean / 5)
    return Case(name, _loads(np.tensordot(parts, scores, axes=1), steepness, slopes, noise))


def synthetic(model: str, *, seed: int = 0) -> Case:
    """Loads in the shape of a model of SHAPES; equal seeds give equal loads."""
    shape = SHAPES[model]
    rng = np.random.default_rng([seed, shape.layers, shape.experts])
    scores = rng.standard_normal((shape.layers, shape.experts))
    tokens = _loads(scores, rng.standard_normal(shape.layers), SYNTHETIC_SLOPES, rng)
    return Case(f"{model} seed {seed}", tokens)


def _scores(shape: Shape, rng: np.random.Generator) -> Floats:
    """[layers, experts]: the higher, the hotter; normal, variance 1."""
    own = rng.standard_normal((shape.layers, shape.experts))
    of_group = np.repeat(rng.standard_normal((shape.layers, GROUPS)), shape.experts // GROUPS, axis=1)
    return math.sqrt(1 - GROUP_PART) * own + math.sqrt(GROUP_PART) * of_group


def _loads(scores: Floats, steepness: Floats, slopes: Slopes, rng: np.random.Generator) -> Floats:
    layers, experts = scores.shape
    slope = np.clip(slopes.mean + slopes.deviation * steepness, slopes.least, slopes.most)[:, np.newaxis]
    rank = np.empty_like(scores)
    np.put_along_axis(rank, np.argsort(-scores, axis=1), np.arange(1.0, experts + 1)[np.newaxis], axis=1)
    cold = np.maximum(0.0, 2 * rank / experts - 1)
    load = (rank + HEAD) ** (-slope / _flattening(experts)) * np.exp(
        -TAIL * cold**2 + NOISE * rng.standard_normal((layers, experts))
    )
    tokens: Floats = np.maximum(1.0, np.round(TOKENS * load / load.sum(axis=1, keepdims=True)))
    return tokens


def _flattening(experts: int) -> float:
    """The slope of log(rank + HEAD) over log rank, by least squares among the hotter half."""
    rank = np.arange(1.0, experts // 2 + 1)
    return float(np.polyfit(np.log(rank), np.log(rank + HEAD), 1)[0])
