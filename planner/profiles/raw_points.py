"""Values of a foreign file on their way to points: each keeps the name of its field, so that errors can name it."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from pydantic import ValidationError

from fleet.catalogues import folded
from fleet.documents import MAX_PROBLEMS, Path, dotted, validation_problems
from fleet.errors import DocumentError, Problem, UnknownNameError
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from planner.profiles.points import MeasuredPoint

# Engines' names of a precision, and ours.  Other names stay.
PRECISIONS: Mapping[str, str] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_block": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "int4_wo": "int4",
    "awq": "int4",
    "gptq": "int4",
}
ABSENT = "is required: the file does not state it, so give it as an option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Values from outside the file; they fill the file's gaps, and the file takes precedence."""

    model: str | None = None
    gpu: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    expert_parallel: int | None = None
    precision: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    date: dt.date | None = None
    source: str | None = None


@dataclass(slots=True)
class RawPoint:
    """One run as the file states it, before validation."""

    at: Path = ()  # the run's line in the file
    line: int | None = None
    values: dict[Path, Any] = field(default_factory=dict)
    origins: dict[Path, Path] = field(default_factory=dict)

    def put(self, target: str | Path, value: Any, *origin: str | int) -> None:
        """Set a field of the point, with its place in the run; None is absent."""
        path = (target,) if isinstance(target, str) else target
        if value is not None and path not in self.values:
            self.values[path] = value
            self.origins[path] = origin

    def fill(self, given: Given) -> None:
        for each in fields(given):
            self.put(each.name, getattr(given, each.name))

    def nested(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path, value in self.values.items():
            inner = found
            for part in path[:-1]:
                inner = inner.setdefault(str(part), {})
            inner[str(path[-1])] = value
        return found

    def problem(self, path: Path, message: str) -> Problem:
        """An error of the point, at the field of the file that it comes from."""
        origin = self.origins.get(path)
        if not path or origin == ():
            return Problem(dotted((*self.at, *path)), message, self.line)
        if origin is None and message == "is required":
            return Problem(dotted((*self.at, *path)), ABSENT, self.line)
        return Problem(dotted((*self.at, *(path if origin is None else origin))), message, self.line)


def points_of(
    raw_points: Iterable[RawPoint], *, name: str, given: Given, gpus: GpuCatalogue, models: ModelCatalogue | None = None
) -> tuple[MeasuredPoint, ...]:
    """The points, with GPU and model under their catalogue names; DocumentError names every invalid field.

    A model that the catalogue lacks keeps its own name: it was measured, so nothing about it needs to be computed.
    """
    found: list[MeasuredPoint] = []
    problems: list[Problem] = []
    for raw in raw_points:
        raw.fill(given)
        raw.put("source", name)
        _rename(raw, models)
        try:
            raw.values[("gpu",)] = gpus.get(raw.values[("gpu",)]).name
        except (KeyError, AttributeError):
            pass  # absent or not text: validation reports it
        except UnknownNameError as error:
            problems.append(raw.problem(("gpu",), str(error)))
        try:
            found.append(MeasuredPoint.model_validate(raw.nested()))
        except ValidationError as error:
            problems += (raw.problem(path, message) for path, message in validation_problems(error))
    if problems:
        raise DocumentError(name=name, problems=list(islice(_once(problems), MAX_PROBLEMS)))
    return tuple(found)


def _rename(raw: RawPoint, models: ModelCatalogue | None) -> None:
    model, precision = raw.values.get(("model",)), raw.values.get(("precision",))
    if models is not None and isinstance(model, str):
        known = models.index.get(folded(model))  # not `get`, which searches for near names and is slow
        raw.values[("model",)] = model if known is None else known.name
    if isinstance(precision, str):
        plain = precision.strip().casefold()
        raw.values[("precision",)] = PRECISIONS.get(plain, plain)


def _once(problems: Iterable[Problem]) -> Iterator[Problem]:
    return iter(dict.fromkeys(problems))
