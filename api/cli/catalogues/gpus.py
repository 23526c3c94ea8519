"""`fleetwright gpus`: read and replace the GPU catalogue."""

from typing import Any

from api.cli.catalogues.documents import document_app
from api.cli.catalogues.kinds import Kind
from api.cli.common.tables import Column, Table, number
from fleet.gpus import GpuCatalogue, GpuSpec, builtin_gpus

COLUMNS = (
    Column("gpu"),
    number("memory GB"),
    number("GB/s"),
    number("16-bit TFLOPS", decimals=1),
    number("fp8 TFLOPS", decimals=1),
    number("TDP W"),
    Column("link"),
    number("link GB/s"),
    Column("as of"),
)


def _table(catalogue: GpuCatalogue) -> Table:
    return Table(
        COLUMNS,
        (
            (
                gpu.name,
                gpu.memory_gb,
                gpu.bandwidth_gb_per_s,
                gpu.dense_tflops.get("bf16") or gpu.dense_tflops.get("fp16"),
                gpu.dense_tflops.get("fp8"),
                gpu.tdp_w,
                gpu.link,
                gpu.link_gb_per_s,
                gpu.date,
            )
            for gpu in catalogue.gpus
        ),
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
        table=_table,
        names=lambda catalogue: (gpu.name for gpu in catalogue.gpus),
        entry=GpuCatalogue.get,
        derived=_derived,
    )
)
