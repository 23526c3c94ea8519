"""The GPU catalogue: memory, bandwidth, compute, power and power-limit range of each accelerator.

It holds only facts of the data file, with their sources, and nothing measured or derived.  docs/reference/catalogue.md
defines every figure and lists the sources.  A figure without a source is None.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fleet.catalogues import Catalogue, Entry, shipped_document
from fleet.documents import Document, Path, RuleError, Violation, read_model
from fleet.errors import DocumentError, FleetwrightError, Problem, UnknownNameError

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"]
LinkKind = Literal["pcie", "nvlink2", "nvlink3", "nvlink4", "nvlink5", "infinity-fabric", "roce", "ici", "neuronlink"]

Tflops = Annotated[float, Field(gt=0, le=1_000_000)]
GbPerS = Annotated[float, Field(gt=0, le=1_000_000)]
Watts = Annotated[float, Field(gt=0, le=20_000)]
Megahertz = Annotated[int, Field(gt=0, le=10_000)]

MIB = 1024 * 1024
MAX_CAP_OVER_TDP = 2.0  # boards accept limits of at most a third above their rating; twice is a typing error


class UnstatedFigureError(FleetwrightError):
    """A figure that a calculation needs and that no source of the catalogue states."""

    def __init__(self, *, gpu: str, figure: str) -> None:
        super().__init__(f"no source states {figure} of GPU {gpu!r}; add it in your own GPU catalogue")
        self.gpu = gpu
        self.figure = figure


class GpuSpec(Entry):
    """One accelerator board.  Bandwidths are per direction, compute is dense (without structured sparsity)."""

    vendor: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    architecture: Annotated[str, Field(min_length=1)]
    compute_capability: str | None = None  # CUDA's "9.0", LLVM's "gfx942"
    form_factor: Literal["sxm", "pcie", "oam", "superchip", "chip"]
    ray_accelerator: str | None = None  # the value of `ray.io/accelerator-type`; several GPUs may share it

    memory_gb: Annotated[float, Field(gt=0, le=100_000)]  # as on the datasheet
    memory_visible_mib: Annotated[int, Field(gt=0)] | None = None  # as the driver reports it
    bandwidth_gb_per_s: GbPerS
    dense_tflops: Annotated[Mapping[Precision, Tflops], Field(min_length=1)]  # a precision without a source is absent

    tdp_w: Watts | None = None
    cap_min_w: Watts | None = None
    cap_max_w: Watts | None = None
    clock_min_mhz: Megahertz | None = None
    clock_max_mhz: Megahertz | None = None

    link: LinkKind  # scale-up link; `pcie` when the GPU has no other
    link_gb_per_s: GbPerS  # one GPU to all its peers together
    link_domain_gpus: Annotated[int, Field(ge=1, le=10_000)]  # GPUs reachable over the link, including this one
    pcie_gb_per_s: GbPerS | None = None  # to the host

    source: Annotated[str, Field(min_length=1)]
    date: dt.date  # when the row was last checked against its source

    @property
    def memory_bytes(self) -> int:
        """Memory to fit a model into: the driver's figure, else the data sheet's GB x 10^9 (never more)."""
        if self.memory_visible_mib is not None:
            return self.memory_visible_mib * MIB
        return int(self.memory_gb * 1e9)

    @property
    def rated_w(self) -> float:
        """`tdp_w`; UnstatedFigureError where no source states it."""
        if self.tdp_w is None:
            raise UnstatedFigureError(gpu=self.name, figure="tdp_w")
        return self.tdp_w

    @property
    def host_link_gb_per_s(self) -> float:
        """`pcie_gb_per_s`; UnstatedFigureError where no source states it."""
        if self.pcie_gb_per_s is None:
            raise UnstatedFigureError(gpu=self.name, figure="pcie_gb_per_s")
        return self.pcie_gb_per_s

    @model_validator(mode="after")
    def _is_physical(self) -> Self:
        RuleError.raise_for(_range_violations(self))
        return self


class GpuCatalogue(Catalogue[GpuSpec]):
    """All known GPUs."""

    kind: ClassVar[str] = "GPU"
    field: ClassVar[str] = "gpus"

    gpus: tuple[GpuSpec, ...]


@cache
def builtin_gpus() -> GpuCatalogue:
    return read_model(shipped_document("gpus.yaml"), GpuCatalogue)


def unknown_gpus(mentions: Iterable[Violation], gpus: GpuCatalogue) -> Iterator[Violation]:
    """The mentions (path, name) that the catalogue cannot resolve, each with the reason."""
    reasons: dict[str, str | None] = {}
    for path, name in mentions:
        if name not in reasons:
            reasons[name] = _reason(name, gpus)
        reason = reasons[name]
        if reason is not None:
            yield path, reason


def require_known_gpus(document: Document, mentions: Iterable[Violation], gpus: GpuCatalogue) -> None:
    """Raise DocumentError, with lines, when a document mentions an unknown GPU."""
    problems: list[Problem] = [document.problem(path, reason) for path, reason in unknown_gpus(mentions, gpus)]
    if problems:
        raise DocumentError(name=document.name, problems=problems)


def _reason(name: str, gpus: GpuCatalogue) -> str | None:
    try:
        gpus.get(name)
    except UnknownNameError as error:
        return str(error)
    return None


def _range_violations(gpu: GpuSpec) -> Iterator[tuple[Path, str]]:
    if gpu.cap_max_w is not None and gpu.tdp_w is not None and gpu.cap_max_w > gpu.tdp_w * MAX_CAP_OVER_TDP:
        limit = f"must be at most {MAX_CAP_OVER_TDP:g} x tdp_w ({gpu.tdp_w * MAX_CAP_OVER_TDP:g})"
        yield ("cap_max_w",), f"{limit}, got {gpu.cap_max_w:g}"
    cap_ceiling_w = gpu.tdp_w if gpu.cap_max_w is None else gpu.cap_max_w
    if gpu.cap_min_w is not None and cap_ceiling_w is not None and gpu.cap_min_w > cap_ceiling_w:
        ceiling = "tdp_w" if gpu.cap_max_w is None else "cap_max_w"
        yield ("cap_min_w",), f"must be at most {ceiling} ({cap_ceiling_w:g}), got {gpu.cap_min_w:g}"
    if gpu.clock_min_mhz is not None and gpu.clock_max_mhz is not None and gpu.clock_min_mhz > gpu.clock_max_mhz:
        yield ("clock_min_mhz",), f"must be at most clock_max_mhz ({gpu.clock_max_mhz}), got {gpu.clock_min_mhz}"
    min_mib, max_mib = gpu.memory_gb * 0.5e9 / MIB, gpu.memory_gb * 1024
    if gpu.memory_visible_mib is not None and not min_mib <= gpu.memory_visible_mib <= max_mib:
        bounds = f"must be from half of memory_gb ({min_mib:.0f}) to all of it in GiB ({max_mib:.0f})"
        yield ("memory_visible_mib",), f"{bounds}, got {gpu.memory_visible_mib}"
    if gpu.link == "pcie" and gpu.link_gb_per_s != gpu.pcie_gb_per_s:
        stated = "" if gpu.pcie_gb_per_s is None else f" ({gpu.pcie_gb_per_s:g})"
        yield ("link_gb_per_s",), f"must equal pcie_gb_per_s{stated} when link is pcie"
