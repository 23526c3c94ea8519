"""The dialects of an export, and its entry `export_plan`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fleet.documents import RuleError, Violation
from fleet.gpus import GpuCatalogue
from planner.engine_flags import ServingEngine
from planner.export import aibrix, dynamo, kserve, launch_scripts, llm_d, lws, rayservice
from planner.export.groups import workload_groups
from planner.export.manifests import Export, ExportedFile
from planner.export.provenance import PlanSource
from planner.export.settings import ENGINE_IMAGES, ExportSettings, Images


class Dialect(StrEnum):
    """What reads the files."""

    VLLM = "vllm"
    SGLANG = "sglang"
    RAYSERVICE = "rayservice"
    KSERVE = "kserve"
    LWS = "lws"
    DYNAMO = "dynamo"
    LLM_D = "llm-d"
    AIBRIX = "aibrix"


def _nothing(_export: Export) -> Iterable[Violation]:
    return ()


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the files of a dialect."""

    files: Callable[[Export], Iterator[ExportedFile]]
    not_expressed: tuple[str, ...]
    images: Images | None  # None: no containers
    violations: Callable[[Export], Iterable[Violation]] = _nothing
    engine: ServingEngine | None = None  # of a dialect that is an engine


def _launch_scripts(engine: ServingEngine) -> Writer:
    return Writer(launch_scripts.files, launch_scripts.NOT_EXPRESSED, images=None, engine=engine)


WRITERS: Final[Mapping[Dialect, Writer]] = {
    Dialect.VLLM: _launch_scripts(ServingEngine.VLLM),
    Dialect.SGLANG: _launch_scripts(ServingEngine.SGLANG),
    Dialect.RAYSERVICE: Writer(
        rayservice.files, rayservice.NOT_EXPRESSED, rayservice.IMAGES, violations=rayservice.violations
    ),
    Dialect.KSERVE: Writer(kserve.files, kserve.NOT_EXPRESSED, kserve.IMAGES, violations=kserve.violations),
    Dialect.LWS: Writer(lws.files, lws.NOT_EXPRESSED, ENGINE_IMAGES),
    Dialect.DYNAMO: Writer(dynamo.files, dynamo.NOT_EXPRESSED, dynamo.IMAGES),
    Dialect.LLM_D: Writer(llm_d.files, llm_d.NOT_EXPRESSED, ENGINE_IMAGES),
    Dialect.AIBRIX: Writer(aibrix.files, aibrix.NOT_EXPRESSED, ENGINE_IMAGES, violations=aibrix.violations),
}


def export_plan(
    source: PlanSource, *, dialect: Dialect, settings: ExportSettings, gpus: GpuCatalogue
) -> tuple[ExportedFile, ...]:
    """The files of a plan.  The same input gives the same bytes; RuleError names what the dialect cannot express."""
    writer = WRITERS[dialect]
    if writer.engine is not None:
        settings = settings.model_copy(update={"engine": writer.engine})
    workloads = workload_groups(source.plan, request=source.request, gpus=gpus, checkpoints=settings.weights)
    vendors = dict.fromkeys(group.gpu.vendor for workload in workloads for group in workload.groups)
    images = _images(vendors, settings, writer)
    export = Export(source=source, settings=settings, workloads=workloads, images=images)
    RuleError.raise_for(
        [*_wide_attention(export), *writer.violations(export), *_without_image(vendors, images, writer, dialect)]
    )
    return tuple(writer.files(export))


def _images(vendors: Iterable[str], settings: ExportSettings, writer: Writer) -> dict[str, str]:
    """The image for each GPU vendor: as given, or else as the engine or the peer publishes it."""
    published = {} if writer.images is None else writer.images.get(settings.engine, {})
    given = {str(vendor): image for vendor, image in settings.image.items()}
    found = {vendor: given.get(vendor, given.get("any", published.get(vendor))) for vendor in vendors}
    return {vendor: image for vendor, image in found.items() if image is not None}


def _wide_attention(export: Export) -> Iterator[Violation]:
    """Options whose flags vLLM has, but no way to start their data-parallel ranks on several nodes each."""
    if export.settings.engine is not ServingEngine.VLLM:
        return
    for group in (group for workload in export.workloads for group in workload.groups):
        if group.nodes_per_replica > 1 and group.settings.attention_data_parallel > 1:
            yield ("engine",), f"vllm: {group.option} has data-parallel attention over several nodes; expected sglang"


def _without_image(
    vendors: Iterable[str], images: Mapping[str, str], writer: Writer, dialect: Dialect
) -> Iterator[Violation]:
    for vendor in vendors:
        if vendor not in images and writer.images is not None:
            yield ("image",), f"is required for {vendor} GPUs: no published image is known for {dialect}"
