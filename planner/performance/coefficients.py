"""The fitted coefficients: the share of a data sheet that an engine reaches, and the correction beyond the roofline.

They ship as `planner/data/performance.yaml`, which `fleetwright profiles fit` writes with date, source and errors.
The file has no measurements; the points of the fit are not part of the project.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen, parse_document, read_model

Positive = Annotated[float, Field(gt=0, le=1e6)]
Terms = Mapping[str, float]

FILE = "performance.yaml"


class Reached(Frozen):
    """Global coefficients of the roofline, each with its meaning and unit.  The defaults are round numbers."""

    weights: Positive = Field(default=0.8, description="Share of peak bandwidth when reading weights of every token.")
    experts: Positive = Field(default=0.8, description="The same for routed experts.")
    cache: Positive = Field(default=0.8, description="The same for the cache.")
    compute: Positive = Field(default=0.5, description="Share of peak arithmetic in dense products.")
    expert_compute: Positive = Field(default=0.5, description="The same in routed experts.")
    attention_compute: Positive = Field(default=0.5, description="The same in attention over a prompt.")
    latent_compute: Positive = Field(default=1.0, description="That of latent attention, as a multiple of it.")
    link: Positive = Field(default=0.8, description="Share of peak link bandwidth in collectives.")
    layer_s: Positive = Field(default=30e-6, description="Launches of one layer.")
    moe_layer_s: Positive = Field(default=10e-6, description="Additional launches of a layer with experts.")
    collective_s: Positive = Field(default=5e-6, description="Latency of a collective per doubling of its GPUs.")
    sequence_s: Positive = Field(default=1e-6, description="Host work per decoding sequence and step.")
    request_s: Positive = Field(default=0.02, description="Once per request: tokenising, queueing between processes.")
    interference: Positive = Field(default=1.0, description="Share of a prompt's work that delays decoding sequences.")
    prefill: Positive = Field(default=1.0, description="A prompt's own time, as a multiple of its work.")
    cache_capacity: Positive = Field(default=1.0, description="Sequences held, as a multiple of what should fit.")
    burst: Positive = Field(default=1.0, description="Queue found by a prompt, as a multiple of the mean queue.")
    start: Positive = Field(default=0.01, description="Share of all waiting prompts ahead of one: they start together.")
    first_steps: Positive = Field(
        default=1.0, description="Steps that pass between a prompt's end and its first token."
    )
    transfer_s: Positive = Field(default=0.1, description="Transfer of a prompt from a prefill to a decode replica.")
    speculation: Positive = Field(default=1.5, description="Tokens per step of runs with speculative decoding.")


class Correction(Frozen):
    """Terms of the logarithm of measured over physical time; a term is a product of the features in its name."""

    tpot: Terms = Field(default_factory=dict)
    ttft: Terms = Field(default_factory=dict)


class Interval(Frozen):
    """Multiples of the predicted time that enclose 90 % of measured times (split-conformal)."""

    low: Positive
    high: Positive
    points: int = Field(ge=1)


class Intervals(Frozen):
    """Per metric, for replica kinds with points and without."""

    tpot: Interval
    ttft: Interval


class Error(Frozen):
    """Errors of predictions on points held out of the fit."""

    split: str
    points: int = Field(ge=1)
    tpot_mape: float = Field(ge=0)
    ttft_mape: float = Field(ge=0)
    tpot_coverage: float = Field(ge=0, le=1)
    ttft_coverage: float = Field(ge=0, le=1)


class Coefficients(Frozen):
    """One fit; the default is the plain roofline."""

    fitted: dt.date | None = None
    source: str = "round numbers, not fitted"
    points: int = Field(default=0, ge=0)
    rejected: Mapping[str, int] = Field(default_factory=dict, description="Rows that were not used, by reason.")
    software_age: float = Field(default=0.0, description="Years from 2026-01-01 to the latest software in the fit.")
    measured_gpus: tuple[str, ...] = ()
    measured_models: tuple[str, ...] = ()
    reached: Reached = Reached()
    local: Correction = Field(default=Correction(), description="For GPU types that were measured.")
    portable: Correction = Field(default=Correction(), description="For all others: nothing that belongs to one type.")
    intervals: Mapping[str, Intervals] = Field(
        default_factory=dict, description="`dense`, `moe`: kinds that were measured; `dense-unseen`, `moe-unseen`."
    )
    errors: tuple[Error, ...] = ()

    def correction(self, gpu: str) -> Correction:
        return self.local if gpu in self.measured_gpus else self.portable

    def interval(self, *, gpu: str, model: str, moe: bool) -> Intervals | None:
        """The intervals for a replica; None without a fit."""
        kind = "moe" if moe else "dense"
        measured = gpu in self.measured_gpus and model in self.measured_models
        return self.intervals.get(kind if measured else f"{kind}-unseen")


UNCALIBRATED = Coefficients()


@cache
def builtin_coefficients() -> Coefficients:
    text = resources.files("planner").joinpath("data", FILE).read_text(encoding="utf-8")
    return read_model(parse_document(text, name=f"planner/data/{FILE}"), Coefficients)
