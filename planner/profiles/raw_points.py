"""JSON output of benchmark tools, and values of a foreign file on their way to points.

A text holds one JSON value, or several in sequence.  The parser accepts infinity, because SGLang writes an unlimited
rate that way; validation rejects it where a number is required.  Each value keeps the name of its field for errors.
"""

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, TypeGuard

from pydantic import ValidationError

from fleet.catalogues import folded
from fleet.documents import MAX_PROBLEMS, Path, dotted, validation_problems
from fleet.errors import DocumentError, Problem, UnknownNameError
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from planner.profiles.points import MeasuredPoint

_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()
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


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object of a text, and its first line."""

    data: Mapping[str, Any]
    line: int


def json_records(text: str, *, name: str) -> list[Record]:
    """Every object in the text; an array stands for the objects in it."""
    found = [record for value, line in _values(text.lstrip("\ufeff"), name) for record in _objects(value, line, name)]
    if not found:
        raise DocumentError(name=name, problems=[Problem("", "is empty, expected at least one JSON object")])
    return found


def at(data: Any, *path: str) -> Any:
    """The value at a path of keys, None where there is none."""
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def scaled(value: Any, factor: float) -> Any:
    """A number in another unit; any other value unchanged, for validation to reject."""
    return value * factor if is_number(value) else value


def per_request(total: Any, requests: Any) -> Any:
    """A mean; None without a divisor."""
    return total / requests if is_number(total) and is_number(requests) and requests > 0 else None


def is_number(value: Any) -> TypeGuard[float]:
    """Whether JSON had a number here, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _values(text: str, name: str) -> Iterator[tuple[Any, int]]:
    position, counted, line = 0, 0, 1
    while (position := _SPACE.match(text, position).end()) < len(text):  # type: ignore[union-attr] # matches nothing too
        line, counted = line + text.count("\n", counted, position), position
        try:
            value, position = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            message = f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}, column {error.colno}"
            raise DocumentError(name=name, problems=[Problem("", message, error.lineno)]) from error
        except RecursionError:
            raise DocumentError(name=name, problems=[Problem("", "is nested too deeply", line)]) from None
        yield value, line


def _objects(value: Any, line: int, name: str) -> Iterator[Record]:
    for item in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
        if not isinstance(item, Mapping):
            shown = json.dumps(item)[:60]
            raise DocumentError(name=name, problems=[Problem("", f"expected a JSON object, got {shown}", line)])
        yield Record(item, line)


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
    """The points, with GPU and model under their catalogue names; DocumentError names every invalid field."""
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
        raise DocumentError(name=name, problems=list(islice(dict.fromkeys(problems), MAX_PROBLEMS)))
    return tuple(found)


def _rename(raw: RawPoint, models: ModelCatalogue | None) -> None:
    model, precision = raw.values.get(("model",)), raw.values.get(("precision",))
    if models is not None and isinstance(model, str):
        known = models.index.get(folded(model))  # not `get`, which searches for near names and is slow
        raw.values[("model",)] = model if known is None else known.name
    if isinstance(precision, str):
        plain = precision.strip().casefold()
        raw.values[("precision",)] = PRECISIONS.get(plain, plain)
