"""Reads the body of a request in the process of its job, with the same errors as the service's own reader."""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from api.jobs.outcome import refuse

ModelT = TypeVar("ModelT", bound=BaseModel)
BODY = "body"


def read_body(model: type[ModelT], text: str) -> ModelT:
    """Validate a body.  Raises ValidationError, or DocumentError for text that is not JSON."""
    return model.model_validate(read_json(text))


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
