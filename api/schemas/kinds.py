"""Objects that have a `kind`: only the fields of that kind are validated, so that errors name no other."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError, ValidationInfo

from fleet.documents import Frozen, RuleError, validate_nested, validation_problems


def validate_by_kind(
    value: Any, info: ValidationInfo, *, kinds: Mapping[str, type[Frozen]], default: str | None = None
) -> Any:
    """Validate as the kind that `value` names, or as `default` where it names none."""
    if isinstance(value, Frozen):
        return value
    if not isinstance(value, dict):
        raise RuleError([((), "expected a mapping of fields")])
    kind = value.get("kind", default)
    model = kinds.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise RuleError([(("kind",), f"allowed: {', '.join(kinds)}")])
    try:
        return validate_nested(model, value, info)
    except ValidationError as error:
        raise RuleError(validation_problems(error)) from error
