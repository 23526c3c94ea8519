"""Fit the size presets to the public traces they are named after, and print fleet/data/size_presets.yaml.

python -m scripts.fit_size_presets FOLDER > fleet/data/size_presets.yaml

FOLDER has the traces, plain or gzipped, at any depth; `SOURCES` names each publication.  The fit is
expectation-maximisation of a mixture of bivariate normals on the logarithms of the sizes (Dempster et al., 1977),
started from k-means++ seeds; the most likely of several starts is the result.  Sizes are whole numbers, so each is
first spread uniformly over the token below it.  The same folder gives the same parameters.  The fit takes minutes.
"""

import argparse
import csv
import datetime as dt
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.sizes.bucketing import MAX_INPUT_EDGES, MAX_OUTPUT_EDGES, Cuts
from fleet.sizes.histogram import SizeBuckets
from fleet.sizes.lognormal_mixture import CORRELATION_MAX, Component, normal_cdf
from fleet.sizes.presets import Goodness, SizePreset, SizePresets
from fleet.traces import read_trace
from fleet.yaml_reader import dump_yaml

COMPONENTS = 8
STARTS = 5
ITERATIONS_MAX = 400
LIKELIHOOD_GAIN_MIN = 1e-6  # per request and iteration; below it the fit has converged
STD_MIN = 0.03
MIN_TOKENS = 0.5  # lower end of a request of one token, so that its logarithm stays near the others
SAMPLES = 200_000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    stem: str  # of its file, before .csv or .csv.gz
    source: str
    licence: str
    citation: str
    columns: tuple[str, str] | None = None  # of sizes in a file without times
    note: str | None = None


AZURE = "Azure/AzurePublicDataset @ b469a11, data/AzureLLMInferenceTrace_{}.csv (one hour of 2023-11-16)"
SPLITWISE = "Patel et al., Splitwise: Efficient Generative LLM Inference Using Phase Splitting, ISCA 2024"
MOONCAKE = "kvcache-ai/Mooncake @ 3b5a594, FAST25-release/traces/{}_trace.jsonl"
MOONCAKE_PAPER = "Qin et al., Mooncake: Trading More Storage for Less Computation, FAST 2025"
CACHED = "Inputs are whole prompts: a prefix that is found in a cache counts as if it were computed."

SOURCES = (
    Source("azure-conversation", "AzureLLMInferenceTrace_conv_2023", AZURE.format("conv"), "CC-BY-4.0", SPLITWISE),
    Source("azure-code", "AzureLLMInferenceTrace_code_2023", AZURE.format("code"), "CC-BY-4.0", SPLITWISE),
    Source(
        "mooncake-conversation",
        "mooncake_conversation_trace",
        MOONCAKE.format("conversation"),
        "Apache-2.0",
        MOONCAKE_PAPER,
        note=CACHED,
    ),
    Source(
        "mooncake-synthetic",
        "mooncake_synthetic_trace",
        MOONCAKE.format("synthetic"),
        "Apache-2.0",
        MOONCAKE_PAPER,
        note=CACHED,
    ),
    Source(
        "arxiv-summarisation",
        "arxiv_summarization_lengths",
        "microsoft/vidur @ 7d47513, data/processed_traces/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
        "MIT",
        "Agrawal et al., Vidur: A Large-Scale Simulation Framework for LLM Inference, MLSys 2024",
        columns=("num_prefill_tokens", "num_decode_tokens"),
        note="Requests of more than 4096 tokens in all were left out by the publisher.",
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    today = dt.datetime.now(dt.UTC).date()
    presets = SizePresets(
        presets=tuple(fitted(source, *sizes_of(source, given.folder), date=today) for source in SOURCES)
    )
    print(
        "# Fitted by scripts/fit_size_presets.py to the named traces, which are not part of this file.\n"
        "# docs/explanation/planner/profiles.md defines the figures.  "
        "Means and deviations are of the natural logarithm of tokens.\n"
    )
    print(dump_yaml(presets.model_dump(mode="json", exclude_defaults=True)), end="")


def sizes_of(source: Source, folder: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    paths = sorted(folder.rglob(f"{source.stem}.csv*"))
    if not paths:
        raise SystemExit(f"{folder}: holds no {source.stem}.csv or {source.stem}.csv.gz ({source.source})")
    data = paths[0].read_bytes()
    text = (gzip.decompress(data) if paths[0].suffix == ".gz" else data).decode()
    if source.columns is None:
        trace = read_trace(text, name=str(paths[0]))
        return trace.input_tokens, trace.output_tokens
    rows = list(csv.DictReader(io.StringIO(text)))
    inputs, outputs = (np.array([int(row[column]) for row in rows]) for column in source.columns)
    return inputs, outputs


def fitted(
    source: Source, inputs: npt.NDArray[np.int64], outputs: npt.NDArray[np.int64], *, date: dt.date
) -> SizePreset:
    rng = np.random.default_rng(0)
    sizes = np.column_stack((inputs, outputs)).astype(float)
    logs = np.log((sizes - rng.random(sizes.shape)).clip(min=MIN_TOKENS))
    fields: dict[str, Any] = {
        "name": source.name,
        "components": likeliest(logs, COMPONENTS, starts=STARTS),
        "longest_input_tokens": int(inputs.max()),
        "longest_output_tokens": int(outputs.max()),
        "input_edges": Cuts.best(inputs, max_edges=MAX_INPUT_EDGES).edges,
        "output_edges": Cuts.best(outputs, max_edges=MAX_OUTPUT_EDGES).edges,
        "source": source.source,
        "licence": source.licence,
        "citation": source.citation,
        "requests": len(inputs),
        "date": date,
        "note": source.note,
    }
    unknown = Goodness(
        input_ks=0, output_ks=0, misplaced=0, mean_tokens_ratio=1, trace_correlation=0, preset_correlation=0
    )
    draft = SizePreset(**fields, fit=unknown)
    return SizePreset(**fields, fit=goodness(draft, inputs, outputs))


def goodness(preset: SizePreset, inputs: npt.NDArray[np.int64], outputs: npt.NDArray[np.int64]) -> Goodness:
    drawn_inputs, drawn_outputs = preset.sample(SAMPLES, rng=np.random.default_rng(1))
    ours = np.array(preset.buckets().share)
    theirs = np.array(
        SizeBuckets.from_requests(
            input_tokens=inputs,
            output_tokens=outputs,
            input_edges=preset.input_edges,
            output_edges=preset.output_edges,
        ).share
    )
    tokens, drawn_tokens = (inputs.sum() + outputs.sum()) / len(inputs), (drawn_inputs + drawn_outputs).mean()
    return Goodness(
        input_ks=round(_ks(inputs, preset.components, side="input"), 4),
        output_ks=round(_ks(outputs, preset.components, side="output"), 4),
        misplaced=round(float(np.abs(ours - theirs).sum()) / 2, 4),
        mean_tokens_ratio=round(float(drawn_tokens / tokens), 4),
        trace_correlation=round(_log_correlation(inputs, outputs), 4),
        preset_correlation=round(_log_correlation(drawn_inputs, drawn_outputs), 4),
    )


def likeliest(logs: Floats, components: int, *, starts: int) -> tuple[Component, ...]:
    """The most likely of several fits, heaviest component first."""
    fits = [_fit(logs, components, rng=np.random.default_rng(seed)) for seed in range(starts)]
    _, parts = max(fits, key=lambda fit: fit[0])
    total = sum(part.weight for part in parts)
    heaviest_first = sorted(parts, key=lambda part: -part.weight)
    return tuple(part.model_copy(update={"weight": round(part.weight / total, 5)}) for part in heaviest_first)


def _fit(logs: Floats, components: int, *, rng: np.random.Generator) -> tuple[float, list[Component]]:
    """One run of expectation-maximisation: its mean log likelihood, and the components."""
    parts, likelihood = _first_guess(logs, components, rng=rng), -np.inf
    for _ in range(ITERATIONS_MAX):
        densities = np.column_stack([_log_density(part, logs) for part in parts])
        highest = densities.max(axis=1, keepdims=True)
        total = highest + np.log(np.exp(densities - highest).sum(axis=1, keepdims=True))
        before, likelihood = likelihood, float(total.mean())
        if likelihood - before < LIKELIHOOD_GAIN_MIN:
            break
        belongs = np.exp(densities - total)
        parts = [_component(logs, belongs[:, number]) for number in range(components)]
    return likelihood, parts


def _first_guess(logs: Floats, components: int, *, rng: np.random.Generator) -> list[Component]:
    """Seeds far from one another, each with the points nearest to it (k-means++, Arthur and Vassilvitskii, 2007)."""
    seeds = [logs[rng.integers(len(logs))]]
    for _ in range(components - 1):
        squares = np.min([((logs - seed) ** 2).sum(axis=1) for seed in seeds], axis=0)
        seeds.append(logs[rng.choice(len(logs), p=squares / squares.sum())])
    nearest = np.argmin([((logs - seed) ** 2).sum(axis=1) for seed in seeds], axis=0)
    return [_component(logs, (nearest == number).astype(float)) for number in range(components)]


def _component(logs: Floats, belongs: Floats) -> Component:
    """The component of points with these membership weights, rounded as written."""
    mass = belongs.sum() + 1e-9
    means = belongs @ logs / mass
    apart = logs - means
    std = np.sqrt(belongs @ apart**2 / mass).clip(min=STD_MIN)
    correlation = float(belongs @ (apart[:, 0] * apart[:, 1]) / mass / (std[0] * std[1]))
    return Component(
        weight=max(float(mass / len(logs)), 1e-5),
        input_mean=round(float(means[0]), 5),
        input_std=round(float(std[0]), 5),
        output_mean=round(float(means[1]), 5),
        output_std=round(float(std[1]), 5),
        correlation=round(float(np.clip(correlation, -CORRELATION_MAX, CORRELATION_MAX)), 5),
    )


def _log_density(part: Component, logs: Floats) -> Floats:
    """The logarithm of weight x density at each point."""
    u, v = (logs[:, 0] - part.input_mean) / part.input_std, (logs[:, 1] - part.output_mean) / part.output_std
    r = part.correlation
    square = (u * u - 2 * r * u * v + v * v) / (1 - r * r)
    scale = 2 * np.pi * part.input_std * part.output_std * np.sqrt(1 - r * r)
    density: Floats = np.log(part.weight / scale) - square / 2
    return density


def _ks(tokens: npt.NDArray[np.int64], components: Sequence[Component], *, side: str) -> float:
    """The largest distance between the two cumulative distributions, at every size except the longest."""
    sizes, counts = np.unique(tokens.clip(min=1), return_counts=True)
    logs = np.log(sizes[:-1])
    below = np.zeros(len(logs))
    for part in components:
        mean, std = getattr(part, f"{side}_mean"), getattr(part, f"{side}_std")
        below += part.weight * normal_cdf((logs - mean) / std)
    below /= sum(part.weight for part in components)
    return float(np.abs(below - np.cumsum(counts)[:-1] / len(tokens)).max())


def _log_correlation(inputs: npt.NDArray[np.int64], outputs: npt.NDArray[np.int64]) -> float:
    return float(np.corrcoef(np.log(inputs.clip(1)), np.log(outputs.clip(1)))[0, 1])


if __name__ == "__main__":
    main()
