"""Reading a YAML or JSON document into a frozen model, with errors that name the line, the field and the allowed range.

YAML 1.2 contains JSON, so one reader serves both.  The reader rejects duplicate keys, because a parser that silently
keeps the last one hides mistakes.  Parsing is pure: the caller reads the file or socket and passes the text.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic.config import ExtraValues
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function

from fleet.errors import DocumentError, FleetwrightError, Problem
from fleet.yaml_reader import Place, YamlDefectError, dump_yaml, load_yaml

Path = tuple[str | int, ...]
Violation = tuple[Path, str]  # path of the value, and the violation
ModelT = TypeVar("ModelT", bound=BaseModel)

_ISO_8601 = re.compile(r"\d{4}-\d{2}-\d{2}")

# The validation context that goes with `extra="ignore"`: pydantic does not pass `extra` to validators.
IGNORE_UNKNOWN: Final[Mapping[str, ExtraValues]] = {"extra": "ignore"}

MAX_KEY = 300  # characters of a key in the path of a problem
MAX_PROBLEMS = 100  # enough for a reader; a faulty generator makes one per row

# pydantic's messages, replaced where ours are more specific.  The rest already name the violated bound.
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
    "too_short": "is empty, expected at least one",  # none of our lists has a higher minimum
}


def _iso_8601_only(value: Any) -> Any:
    """pydantic would also accept a number, or text with a number, as seconds since 1970."""
    if isinstance(value, int | float) or (isinstance(value, str) and not _ISO_8601.match(value)):
        raise ValueError("expected a date in ISO 8601, such as 2026-11-21 or 2026-11-21T06:00:00Z")
    return value


def _refuse_coercion(schema: Any) -> None:
    """Make every number, boolean and date in a core schema accept only its own form, in place."""
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("int", "float", "bool"):
            schema["strict"] = True
        elif kind == "function-before" and schema["function"].get("function") is _iso_8601_only:
            return  # already visited: pydantic returns the schema of an inner model many times
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

    A quoted "5" or a `true` in place of a number is an error, and an API that accepted it would contradict its own
    schema.  pydantic's strict mode would also reject lists for tuples and text for enums and dates, so this class
    makes only numbers and booleans strict.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        schema = handler(source)
        _refuse_coercion(schema)
        return schema


class RuleError(FleetwrightError, ValueError):
    """Values that contradict each other: (path inside the model, message) per violation.

    It is also a ValueError, so that a pydantic validator may raise it; `validation_problems` then unpacks it.
    """

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__(
            "; ".join(f"{dotted(path)}: {message}" if path else message for path, message in self.violations)
        )

    @classmethod
    def raise_for(cls, violations: Iterable[Violation]) -> None:
        """Raise if there is any violation, with at most MAX_PROBLEMS of them."""
        if found := tuple(itertools.islice(violations, MAX_PROBLEMS)):
            raise cls(found)


@dataclass(frozen=True, slots=True)
class Document:
    """Parsed data and the place of each value in the text."""

    name: str
    data: Any
    root: Place

    def line_of(self, path: Path) -> int:
        """The line of a value, or of the nearest enclosing one that the text contains."""
        place = self.root
        for part in path:
            inner = place.inside.get(part)
            if inner is None:
                break
            place = inner
        return place.line

    def problem(self, path: Path, message: str) -> Problem:
        return Problem(path=dotted(path), message=message, line=self.line_of(path))


def parse_document(text: str, *, name: str) -> Document:
    """Parse YAML or JSON text.  `name` is the document's name in errors (a file name, a request body)."""
    try:
        data, root = load_yaml(text)
    except YamlDefectError as error:
        problem = Problem(dotted(error.path), error.message, error.line)
        raise DocumentError(name=name, problems=[problem]) from error
    return Document(name=name, data=data, root=root)


def read_model(document: Document, model: type[ModelT]) -> ModelT:
    """Validate a parsed document into `model`, or raise DocumentError with its violations."""
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


def read_stored(model: type[ModelT], text: str | bytes) -> ModelT:
    """Read what this program wrote.  A newer release may have written it, so unknown fields are ignored."""
    return model.model_validate_json(text, extra="ignore", context=IGNORE_UNKNOWN)


def validate_nested(model: type[ModelT], value: Any, info: ValidationInfo) -> ModelT:
    """Validate a value inside a validator as the whole document is validated."""
    return model.model_validate(value, extra=(info.context or {}).get("extra"), context=info.context)


def write_model(model: BaseModel) -> str:
    """A model as YAML without default values.  `read_model` restores the model from it."""
    return dump_yaml(model.model_dump(mode="json", exclude_defaults=True))


def validation_problems(error: ValidationError) -> list[Violation]:
    """pydantic's errors as (path, message) with the offending value in the message."""
    return item_problems(error.errors(include_url=False))


def item_problems(items: Iterable[Any]) -> list[Violation]:
    """The same for items from FastAPI, which unpacks the error itself; also unpacks RuleErrors."""
    found: list[Violation] = []
    items = list(items)
    # pydantic omits a wrong entry from a list, and then reports the list as too short.
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
    """`("offers", 3, "price")` -> `offers[3].price`; of a very long key only both ends are shown."""
    text = ""
    for part in path:
        if isinstance(part, str) and len(part) > MAX_KEY:
            part = f"{part[: MAX_KEY // 2]}…{part[-MAX_KEY // 2 :]}"  # noqa: PLW2901 - the same part, shorter
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _message(item: Any) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    message = _WORDING.get(item["type"], message[:1].lower() + message[1:])
    given = item.get("input")
    if isinstance(given, str | int | float | bool) and item["type"] not in ("value_error", "extra_forbidden"):
        return f"{message}, got {given!r}" if len(repr(given)) <= 80 else message
    return message
