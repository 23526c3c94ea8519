"""Builds models from options and arguments."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from fleet.documents import dotted, validation_problems
from fleet.errors import DocumentError, Problem

ValueT = TypeVar("ValueT")


def build_model(make: Callable[..., ValueT], what: str, /, **fields: Any) -> ValueT:
    """Call `make(**fields)` and report an invalid field as a defect of `what`."""
    try:
        return make(**fields)
    except ValidationError as error:
        problems = [Problem(dotted(path), message) for path, message in validation_problems(error)]
        raise DocumentError(name=what, problems=problems) from None
