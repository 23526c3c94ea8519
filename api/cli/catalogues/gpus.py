"""`fleetwright gpus`: read and replace the GPU catalogue."""

from typing import Any

from api.cli.catalogues.documents import document_app
from api.cli.catalogues.kinds import Kind
from api.cli.common.tables import Column, number, table_of
from fleet.gpus import GpuCatalogue, GpuSpec, builtin_gpus

COLUMNS = (
    Column("gpu", of="name"),
    number("memory GB", of="memory_gb"),
    number("GB/s", of="bandwidth_gb_per_s"),
    number("16-bit TFLOPS", decimals=1, of=lambda gpu: gpu.dense_tflops.get("bf16") or gpu.dense_tflops.get("fp16")),
    number("fp8 TFLOPS", decimals=1, of=lambda gpu: gpu.dense_tflops.get("fp8")),
    number("TDP W", of="tdp_w"),
    Column("link", of="link"),
    number("link GB/s", of="link_gb_per_s"),
    Column("as of", of="date"),
)


def _derived(_catalogue: GpuCatalogue, gpu: GpuSpec) -> dict[str, Any]:
    return {"memory_bytes": gpu.memory_bytes}


app = document_app(
    Kind(
        name="gpus",
        entry_name="GPU",
        model=GpuCatalogue,
        builtin=builtin_gpus,
        overlaid=GpuCatalogue.overlaid,
        table=lambda catalogue: table_of(COLUMNS, catalogue.gpus),
        names=lambda catalogue: (gpu.name for gpu in catalogue.gpus),
        entry=GpuCatalogue.get,
        derived=_derived,
    )
)
