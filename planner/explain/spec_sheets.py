"""Peak rates of the candidates by their data sheets, and the least work of the requests, for the ideal bound."""

from collections.abc import Sequence
from math import inf

import numpy as np

from fleet.models import ModelArchitecture
from fleet.sizes.histogram import SizeBuckets
from fleet.traces import Trace
from planner.explain.ideal_bound import Hardware, Work, mean_work, request_work
from planner.options.search import Candidate
from planner.performance.config import KV_BYTES, SIXTEEN_BIT_BYTES
from planner.request import PlanRequest, Workload

TERA = 1e12
GIGA = 1e9


def hardware(candidate: Candidate) -> Hardware:
    """An option's GPUs at the fastest arithmetic that its precision may use, at full clock."""
    sheet = candidate.gpu
    if sheet is None:  # infinite rates keep the bound valid
        return Hardware(inf, inf, candidate.gpus)
    kinds = {*sheet.dense_tflops}
    if candidate.shape is not None and candidate.model is not None:
        config = candidate.shape.config(candidate.model, sheet, expert_imbalance=1.0)
        kinds = {kind for kind in (config.arithmetic, config.base_arithmetic) if kind is not None} or kinds
    tflops = max(sheet.dense_tflops[kind] for kind in kinds)
    return Hardware(tflops * TERA, sheet.bandwidth_gb_per_s * GIGA, candidate.gpus)


def work(request: PlanRequest, candidates: Sequence[Candidate]) -> list[tuple[Work, ...] | None]:
    """Per workload and bucket; None if the model is not known."""
    found: list[tuple[Work, ...] | None] = []
    for w, workload in enumerate(request.workloads):
        own = [candidate for candidate in candidates if candidate.workload == w]
        models = {candidate.model.name: candidate.model for candidate in own if candidate.model is not None}
        kv_bytes = min((KV_BYTES[c.shape.kv_precision] for c in own if c.shape), default=SIXTEEN_BIT_BYTES)
        known = len(models) == 1 and all(candidate.model is not None for candidate in own)
        if not known:
            found.append(None)
            continue
        sustained = _sustained(request, workload)
        parts = _per_bucket(workload, next(iter(models.values())), kv_bytes)
        found.append(tuple(Work(part.flops * sustained, part.moved_bytes * sustained) for part in parts))
    return found


def _sustained(request: PlanRequest, workload: Workload) -> float:
    """The share of the planned rate that must be sustained: with a replay, the peak of a series may queue."""
    series = workload.series
    if series is None or request.proof is None or not request.proof.size or series.peak_rps <= 0:
        return 1.0
    return series.mean_rps / series.peak_rps


def _per_bucket(workload: Workload, model: ModelArchitecture, kv_bytes: float) -> tuple[Work, ...]:
    """Of a bucket's mean request if a trace is known, else of the smallest request in the bucket."""
    sizes = workload.sizes
    if sizes.trace is not None:
        return _of_trace(sizes.trace, sizes.buckets, model, kv_bytes)
    return tuple(
        request_work(model, input_tokens=bucket.lower[0] + 1, output_tokens=bucket.lower[1] + 1, kv_bytes=kv_bytes)
        for bucket in sizes.buckets.buckets()
    )


def _of_trace(trace: Trace, buckets: SizeBuckets, model: ModelArchitecture, kv_bytes: float) -> tuple[Work, ...]:
    columns = len(buckets.output_tokens)
    rows = np.searchsorted(buckets.input_tokens, trace.input_tokens).clip(max=len(buckets.input_tokens) - 1)
    position = rows * columns + np.searchsorted(buckets.output_tokens, trace.output_tokens).clip(max=columns - 1)
    order = np.argsort(position, kind="stable")
    starts = np.searchsorted(position[order], np.arange(1, len(buckets.input_tokens) * columns))
    return tuple(
        mean_work(
            model, input_tokens=trace.input_tokens[own], output_tokens=trace.output_tokens[own], kv_bytes=kv_bytes
        )
        if len(own)
        else Work(0.0, 0.0)
        for own in np.split(order, starts)
    )
