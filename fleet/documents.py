"""Reading a YAML or JSON document into a frozen model, with errors that name the line, the field and the allowed range.

YAML 1.2 contains JSON, so one reader serves both.  Duplicate keys are refused: the last one winning silently has cost
people fleets.  Parsing text is pure; whoever owns the file or the socket hands over the text.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function

from fleet.errors import DocumentError, FleetwrightError, Problem
from fleet.yaml_reader import Place, YamlDefectError, dump_yaml, load_yaml

Path = tuple[str | int, ...]
Violation = tuple[Path, str]  # where, and what is wrong there
ModelT = TypeVar("ModelT", bound=BaseModel)

_ISO_8601 = re.compile(r"\d{4}-\d{2}-\d{2}")

MAX_PROBLEMS = 100  # more than anyone reads; a wrong generator makes one per row

# pydantic's words where ours say more.  The rest of its messages already name the bound that was broken.
_WORDING: Mapping[str, str] = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "model_type": "expected a mapping of fields",
    "model_attributes_type": "expected a mapping of fields",
    "dict_type": "expected a mapping",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "string_type": "expected text (a number or true/false meant as text needs quotes)",
    "bool_type": "expected true or false",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "too_short": "is empty, expected at least one",  # no list of ours has a higher minimum
}


def _iso_8601_only(value: Any) -> Any:
    """pydantic would also take a number, or text that holds one, for seconds since 1970."""
    if isinstance(value, int | float) or (isinstance(value, str) and not _ISO_8601.match(value)):
        raise ValueError("expected a date in ISO 8601, such as 2026-11-21 or 2026-11-21T06:00:00Z")
    return value


def _refuse_coercion(schema: Any) -> None:
    """Make every number, truth value and date in a core schema take its own form only, in place."""
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("int", "float", "bool"):
            schema["strict"] = True
        elif kind == "function-before" and schema["function"].get("function") is _iso_8601_only:
            return  # done before: pydantic hands out the schema of an inner model again and again
        elif kind in ("date", "datetime"):
            inner = schema.copy()
            schema.clear()
            schema.update(no_info_before_validator_function(_iso_8601_only, inner))
            return
        for key, value in schema.items():
            if key not in ("metadata", "default", "serialization"):
                _refuse_coercion(value)
    elif isinstance(schema, list | tuple):
        for value in schema:
            _refuse_coercion(value)


class Frozen(BaseModel):
    """Base of every value that crosses a border: immutable, no unknown fields, no NaN or infinity, no coercion.

    A quoted "5" or a `true` where a number belongs is a mistake to report, and an API that took it would contradict
    its own schema.  pydantic's strict mode would also refuse lists for tuples and text for enums and dates, so only
    numbers and truth values are made strict.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        schema = handler(source)
        _refuse_coercion(schema)
        return schema


class RuleError(FleetwrightError, ValueError):
    """Values that do not fit together: (path inside the model, message) per defect.

    A ValueError too, so that a pydantic validator may raise it; `validation_problems` then opens it up.
    """

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__(
            "; ".join(f"{dotted(path)}: {message}" if path else message for path, message in self.violations)
        )

    @classmethod
    def raise_for(cls, violations: Iterable[Violation]) -> None:
        """Raise when there is any violation; of a flood only as many as anyone reads."""
        if found := tuple(itertools.islice(violations, MAX_PROBLEMS)):
            raise cls(found)


@dataclass(frozen=True, slots=True)
class Document:
    """Parsed data plus the place of each value in the text."""

    name: str
    data: Any
    root: Place

    def line_of(self, path: Path) -> int:
        """The line of a value, or of the nearest enclosing one that was written at all."""
        place = self.root
        for part in path:
            inner = place.inside.get(part)
            if inner is None:
                break
            place = inner
        return place.line

    def problem(self, path: Path, message: str) -> Problem:
        """A defect at this place, with its line."""
        return Problem(path=dotted(path), message=message, line=self.line_of(path))


def parse_document(text: str, *, name: str) -> Document:
    """Parse YAML or JSON text.  `name` is how errors call the document (a file name, a request body)."""
    try:
        data, root = load_yaml(text)
    except YamlDefectError as error:
        problem = Problem(dotted(error.path), error.message, error.line)
        raise DocumentError(name=name, problems=[problem]) from error
    return Document(name=name, data=data, root=root)


def read_model(document: Document, model: type[ModelT]) -> ModelT:
    """Validate a parsed document into `model`, or raise DocumentError with the defects in it."""
    if document.data is None:
        raise DocumentError(name=document.name, problems=[Problem("", "is empty, expected a mapping of fields")])
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        found = validation_problems(error)
        problems = [document.problem(path, message) for path, message in found[:MAX_PROBLEMS]]
        if len(found) > MAX_PROBLEMS:
            problems.append(Problem("", f"and {len(found) - MAX_PROBLEMS:,} more"))
        raise DocumentError(name=document.name, problems=problems) from error


def write_model(model: BaseModel) -> str:
    """A model as the YAML a user would write: nothing that says the default.  `read_model` gives it back."""
    return dump_yaml(model.model_dump(mode="json", exclude_defaults=True))


def validation_problems(error: ValidationError) -> list[Violation]:
    """pydantic's findings as (path, message) with the offending value in the message."""
    return item_problems(error.errors(include_url=False))


def item_problems(items: Iterable[Any]) -> list[Violation]:
    """The same for items already taken out of the error, as FastAPI hands them over; opens up RuleErrors."""
    found: list[Violation] = []
    items = list(items)
    # pydantic leaves a wrong entry out of a list, and then calls the list too short.
    broken_inside = {tuple(item["loc"][:depth]) for item in items for depth in range(len(item["loc"]))}
    for item in items:
        path = tuple(item["loc"])
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, RuleError):
            found += [((*path, *inner), message) for inner, message in cause.violations]
        elif item["type"] != "too_short" or path not in broken_inside:
            found.append((path, _message(item)))
    return found


def dotted(path: Sequence[str | int]) -> str:
    """`("offers", 3, "price")` -> `offers[3].price`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _message(item: Any) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    message = _WORDING.get(item["type"], message[:1].lower() + message[1:])
    given = item.get("input")
    if isinstance(given, str | int | float | bool) and item["type"] not in ("value_error", "extra_forbidden"):
        return f"{message}, got {given!r}" if len(repr(given)) <= 80 else message
    return message
