"""dcgm-exporter's metrics as GPU counters.

Field names: the exporter's etc/default-counters.csv and DCGM's dcgm_fields.h.  DCGM_FI_DEV_XID_ERRORS holds the last
XID for ever (dcgm-exporter#500), so only changes count.  Blank values (not supported, not found, no permission) and
values of other hosts are dropped.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from faults.observations import DeviceCounter, Observation
from faults.readers.fields import decimal
from faults.readers.job_map import JobMap
from faults.readers.parse_errors import MalformedError, ParseErrors
from faults.readers.prometheus import Sample, parse_samples

SOURCE: Final = "dcgm"
MAX_XID: Final = 100_000

# The kind of the metric, and the index of its counter.
COUNTERS: Final[Mapping[str, tuple[str, int]]] = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc-double", 0),  # since the driver was loaded
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": ("ecc-double", 1),  # over the GPU's life
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc-single", 0),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": ("ecc-single", 1),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("row-remap", 0),  # 1: it failed, the GPU must be replaced
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("row-remap", 1),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("row-remap", 2),
    "DCGM_FI_DEV_RETIRED_DBE": ("retired", 0),
    "DCGM_FI_DEV_RETIRED_SBE": ("retired", 1),
    "DCGM_FI_DEV_RETIRED_PENDING": ("retired", 2),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("nvlink", 0),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": ("nvlink", 1),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("nvlink", 2),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("nvlink", 3),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("pcie", 0),
    "DCGM_FI_DEV_THERMAL_VIOLATION": ("thermal", 0),
    "DCGM_FI_DEV_POWER_VIOLATION": ("power", 0),
}
# The value is the number of the last error; 0: none.
LAST_ERRORS: Final[Mapping[str, str]] = {
    "DCGM_FI_DEV_XID_ERRORS": "xid",
    "DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS": "nvswitch",
}
# The number is a label, the value counts.  The exporter has used both names (dcgm-exporter#239).
COUNTED_ERRORS: Final = ("DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_XID_ERRORS_ACTIVE")


def parse_dcgm(
    chunks: Iterable[bytes], *, at_s: float, node: int, job_map: JobMap, tally: ParseErrors
) -> Iterator[Observation]:
    """Parse one scrape of the exporter on `node`; if the job's hosts are known, the sample's own label decides."""
    for sample in parse_samples(chunks, prefixes=("DCGM_FI_DEV_", "DCGM_EXP_"), source=SOURCE, tally=tally):
        with tally.skipping(SOURCE):
            device = _device(sample)
            if device is not None:
                yield Observation(at_s, _node(sample, node=node, job_map=job_map), device)


def _node(sample: Sample, *, node: int, job_map: JobMap) -> int:
    host = sample.labels.get("Hostname")
    return job_map.host(host) if host is not None and job_map.hosts else job_map.known(node)


def _device(sample: Sample) -> DeviceCounter | None:
    name, value = sample.name, sample.value
    if name not in COUNTERS and name not in LAST_ERRORS and name not in COUNTED_ERRORS:
        return None
    if _blank(value):
        return None
    if not math.isfinite(value) or not 0 <= value < 2**63:
        raise MalformedError("value is no number in range")
    gpu = sample.labels.get("gpu") or sample.labels.get("UUID") or sample.labels.get("nvswitch")
    if not gpu:
        raise MalformedError("no gpu label")
    if name in LAST_ERRORS:
        code = _code(value)
        return DeviceCounter(gpu, LAST_ERRORS[name], code, float(code > 0))
    if name in COUNTED_ERRORS:
        code = decimal(sample.labels.get("xid"), digits=6, defect="xid label is no error number")
        return DeviceCounter(gpu, "xid", code, value)
    counter_name, counter = COUNTERS[name]
    return DeviceCounter(gpu, counter_name, counter, value)


def _code(value: float) -> int:
    if value != int(value) or value > MAX_XID:
        raise MalformedError("value is no error number")
    return int(value)


def _blank(value: float) -> bool:
    """Return whether a value is DCGM_INT32_BLANK, DCGM_FP64_BLANK, DCGM_INT64_BLANK or one of the fifteen values after
    each.
    """
    return (
        0x7FFFFFF0 <= value <= 0x7FFFFFFF or 2.0**47 <= value <= 2.0**47 + 15 or value >= float(0x7FFFFFFFFFFFFFF0)
    ) and math.isfinite(value)
