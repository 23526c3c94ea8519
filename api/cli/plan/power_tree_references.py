"""Turns the feeds of a request's `power_tree` into power domains.

Only the command line reads the file, relative to the request.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import Field, ValidationError

from api.cli.common.files import read_file
from fleet.documents import Document, Frozen, RuleError, Violation, validation_problems
from fleet.errors import DocumentError

FIELD = "power_tree"


class NamedTree(Frozen):
    """Holds the request's field: the tree's file, the members of its feeds, and the accepted risk."""

    file: str = Field(min_length=1)
    members: Mapping[str, tuple[str, ...]] | None = None
    risk: float = Field(default=1e-3, ge=1e-9, le=0.5)


def with_power_tree(document: Document, folder: Path) -> Document:
    """Append the tree's feeds to the request's own power domains."""
    from planner.power_domains import power_domains  # noqa: PLC0415 - plans of caps, which few requests need
    from power.caps import Terms  # noqa: PLC0415 - as above
    from power.tree import PowerTree  # noqa: PLC0415 - as above

    named = _named(document)
    tree = read_file(folder / named.file, PowerTree)
    try:
        feeds = power_domains(tree, members=named.members, terms=Terms(risk=named.risk))
    except RuleError as error:
        raise _refused(document, error.violations) from error
    others = {field: value for field, value in document.data.items() if field != FIELD}
    own = others.get("power_domains") or []
    if not isinstance(own, list):
        return replace(document, data=others)  # validation of the request reports the error
    return replace(
        document, data={**others, "power_domains": [*own, *(feed.model_dump(mode="json") for feed in feeds)]}
    )


def _named(document: Document) -> NamedTree:
    try:
        return NamedTree.model_validate(document.data[FIELD])
    except ValidationError as error:
        raise _refused(document, validation_problems(error)) from error


def _refused(document: Document, violations: Iterable[Violation]) -> DocumentError:
    problems = [document.problem((FIELD, *place), message) for place, message in violations]
    return DocumentError(name=document.name, problems=problems)
