"""xpu_timer's metrics (DLRover) of each rank.  Its hang flag is another tool's conclusion, not an observation."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from faults.observations import ExternalFinding, Observation
from faults.readers.fields import decimal
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import MalformedError, ParseErrors
from faults.readers.prometheus import Sample, parse_samples

SOURCE: Final = "xpu_timer"
FINDINGS: Final[Mapping[str, str]] = {
    "XPU_TIMER_COMMON_HANG": "hang",
    "XPU_TIMER_COMMON_GC_COUNT": "garbage-collections",
    "XPU_TIMER_COMMON_DATA_LOADER_COUNT": "data-loads",
    "XPU_TIMER_COMMON_WORK_QUEUE_SIZE": "queued",
    "XPU_TIMER_MM_KERNEL_FLOPS": "matmul-tflops",
    "XPU_TIMER_MM_KERNEL_AVG_LATENCY": "matmul-us",
    "XPU_TIMER_COLL_KERNEL_AVG_LATENCY": "collective-us",
    "XPU_TIMER_COLL_KERNEL_BANDWIDTH": "collective-gb-per-s",
}
KIND_LABELS: Final = ("operation", "dtype", "transport", "level")  # labels that distinguish kernels


def parse_xpu_timer(
    chunks: Iterable[bytes], *, at_s: float, job_map: JobMap, tally: ParseErrors
) -> Iterator[Observation]:
    """Parse one scrape of a node's exporter, for all of its ranks."""
    for sample in parse_samples(chunks, prefixes=("XPU_TIMER_",), source=SOURCE, tally=tally):
        if sample.name in FINDINGS:
            with tally.skipping(SOURCE):
                yield _finding(sample, at_s=at_s, job_map=job_map)


def _finding(sample: Sample, *, at_s: float, job_map: JobMap) -> Observation:
    rank = decimal(sample.labels.get("rank"), digits=6, defect="rank label is no rank")
    if not math.isfinite(sample.value) or sample.value < 0:
        raise MalformedError("value is no number in range")
    kind = "/".join(sample.labels[label] for label in KIND_LABELS if label in sample.labels)
    finding = f"{FINDINGS[sample.name]} {kind}" if kind else FINDINGS[sample.name]
    return Observation(at_s, job_map.node(rank), ExternalFinding(SOURCE, finding, sample.value), rank=rank)
