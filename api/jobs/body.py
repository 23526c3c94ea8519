"""Reads the body of a request in the process of its job, with the same errors as the service's own reader."""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.jobs.outcome import refuse
from api.jobs.pruning import prune, reliable_errors
from fleet.documents import MAX_PROBLEMS, dotted, item_problems
from fleet.errors import DocumentError, Problem

ModelT = TypeVar("ModelT", bound=BaseModel)
BODY = "body"
PARTLY_CHARACTERS = 64 * 1024  # the first part of a longer body is checked first


def read_body(model: type[ModelT], text: str) -> ModelT:
    """Validate a body.  Raises ValidationError, or DocumentError for text that is not JSON or a large wrong body."""
    document = read_json(text)
    if len(text) > PARTLY_CHARACTERS:
        _check_first_part(model, document)
    return model.model_validate(document)


def _check_first_part(model: type[BaseModel], document: Any) -> None:
    part, whole = prune(document)
    try:
        model.model_validate(part)
    except ValidationError as error:
        items: list[Any] = error.errors(include_url=False)
        found = items if whole else reliable_errors(items)
        if not found:
            return
        problems = [Problem(dotted(path) or BODY, text) for path, text in item_problems(found[:MAX_PROBLEMS])]
        if len(found) > MAX_PROBLEMS:
            problems[-1] = Problem(BODY, f"and {len(found) - MAX_PROBLEMS + 1:,} more in its first part")
        raise DocumentError(name="request", problems=problems) from None


def read_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise refuse(BODY, f"must be JSON; at character {error.pos + 1}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise refuse(BODY, "cannot be read; allowed: JSON in UTF-8, nested some hundred levels deep at most") from error


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; DocumentError where it has a key twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _value in pairs:
            if key in seen:
                raise refuse(BODY, f"has the key {key!r} twice in one object, expected once")
            seen.add(key)
    return found
