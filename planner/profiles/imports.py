"""Import of measurement files: format detection, and the reader of each format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from fleet.documents import MAX_PROBLEMS, parse_document, read_model
from fleet.errors import DocumentError, Problem
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from planner.profiles.csv_tables import own_raw_points, silicon_raw_points
from planner.profiles.guidellm import guidellm_raw_points
from planner.profiles.points import MeasuredPoint, Profiles
from planner.profiles.raw_points import Given, RawPoint, at, json_records, points_of
from planner.profiles.vllm_bench import SGLANG, VLLM, Dialect, serving_raw_point


class Format(StrEnum):
    OWN = "own"  # YAML or JSON: points
    OWN_CSV = "csv"
    VLLM = "vllm"
    SGLANG = "sglang"
    GUIDELLM = "guidellm"
    SILICON = "silicon"


@dataclass(frozen=True, slots=True)
class Imported:
    format: Format
    points: tuple[MeasuredPoint, ...]
    left_out: int = 0  # rows that are not a replica


def read_points(
    text: str,
    *,
    name: str,
    gpus: GpuCatalogue,
    models: ModelCatalogue | None = None,
    form: Format | None = None,
    given: Given | None = None,
) -> Imported:
    """The points in a text; the format is detected unless given.  DocumentError names field and allowed range."""
    form = form or format_of(text, name=name)
    if form is Format.OWN:
        return Imported(form, _own(text, name, gpus))
    raw_points, left_out = READERS[form](text, name)
    given = given or Given()
    return Imported(form, points_of(raw_points, name=name, given=given, gpus=gpus, models=models), left_out)


def format_of(text: str, *, name: str) -> Format:
    start = text.lstrip("\ufeff \t\r\n")[:20_000]
    header = {column.strip() for column in start.partition("\n")[0].split(",")}
    if "silicon_ttft_ms" in header:
        return Format.SILICON
    if {"model", "gpu"} & header and len(header) > 2:
        return Format.OWN_CSV
    if not start.startswith(("{", "[")):
        return Format.OWN
    data = json_records(text, name=name)[0].data
    if "benchmarks" in data:
        return Format.GUIDELLM
    if "points" in data:
        return Format.OWN
    if "request_throughput" in data:
        return Format.VLLM if at(data, "model_id") is not None else Format.SGLANG
    known = ", ".join(Format)
    message = f"is in no known format ({known}): expected points, benchmarks or request_throughput among its fields"
    raise DocumentError(name=name, problems=[Problem("", message, 1)])


def _own(text: str, name: str, gpus: GpuCatalogue) -> tuple[MeasuredPoint, ...]:
    document = parse_document(text, name=name)
    profiles = read_model(document, Profiles)
    problems = [document.problem(path, message) for path, message in islice(profiles.unknown_gpus(gpus), MAX_PROBLEMS)]
    if problems:
        raise DocumentError(name=name, problems=problems)
    return tuple(point.model_copy(update={"gpu": gpus.get(point.gpu).name}) for point in profiles.points)


def _serving(dialect: Dialect) -> Callable[[str, str], tuple[list[RawPoint], int]]:
    def read(text: str, name: str) -> tuple[list[RawPoint], int]:
        records = json_records(text, name=name)
        return [serving_raw_point(record, dialect=dialect) for record in records], 0

    return read


def _guidellm(text: str, name: str) -> tuple[list[RawPoint], int]:
    records = json_records(text, name=name)
    return [raw for record in records for raw in guidellm_raw_points(record, name=name)], 0


READERS: Mapping[Format, Callable[[str, str], tuple[list[RawPoint], int]]] = {
    Format.OWN_CSV: lambda text, name: (own_raw_points(text, name=name), 0),
    Format.VLLM: _serving(VLLM),
    Format.SGLANG: _serving(SGLANG),
    Format.GUIDELLM: _guidellm,
    Format.SILICON: lambda text, name: silicon_raw_points(text, name=name),
}
