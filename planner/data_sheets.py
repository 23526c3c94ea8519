"""What the data sheets promise of the candidates, for the bound of a perfect system."""

from collections.abc import Sequence

from fleet.models import ModelArchitecture
from planner.perfect import Hardware, Work, request_work
from planner.performance.config import KV_BYTES, SIXTEEN_BIT_BYTES
from planner.request import PlanRequest, Workload
from planner.search import Candidate

TERA = 1e12
GIGA = 1e9


def hardware(candidate: Candidate) -> Hardware:
    """An option's GPUs at the fastest arithmetic that its precision may use, at full clock."""
    sheet = candidate.gpu
    kinds = {*sheet.dense_tflops}
    if candidate.shape is not None and candidate.model is not None:
        config = candidate.shape.config(candidate.model, sheet, expert_imbalance=1.0)
        kinds = {kind for kind in (config.arithmetic, config.base_arithmetic) if kind is not None} or kinds
    tflops = max(sheet.dense_tflops[kind] for kind in kinds)
    return Hardware(tflops * TERA, sheet.bandwidth_gb_per_s * GIGA, candidate.gpus)


def work(request: PlanRequest, candidates: Sequence[Candidate]) -> list[tuple[Work, ...] | None]:
    """Per workload and bucket; None where the model is not known."""
    found: list[tuple[Work, ...] | None] = []
    for w, workload in enumerate(request.workloads):
        own = [candidate for candidate in candidates if candidate.workload == w]
        models = {candidate.model.name: candidate.model for candidate in own if candidate.model is not None}
        kv_bytes = min((KV_BYTES[c.shape.kv_precision] for c in own if c.shape), default=SIXTEEN_BIT_BYTES)
        known = len(models) == 1 and all(candidate.model is not None for candidate in own)
        found.append(_per_bucket(workload, next(iter(models.values())), kv_bytes) if known else None)
    return found


def _per_bucket(workload: Workload, model: ModelArchitecture, kv_bytes: float) -> tuple[Work, ...]:
    return tuple(
        request_work(model, input_tokens=bucket.edge[0], output_tokens=bucket.edge[1], kv_bytes=kv_bytes)
        for bucket in workload.buckets.buckets()
    )
