"""Replaces file names in a request by the content of the files, and a `power_tree` by its feeds as power domains.

Only the command line does this, relative to the request file: a service must not read files that a caller names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from api.cli.common.files import STDIN, read_bytes, read_file, read_text
from fleet.documents import Document, Frozen, RuleError, Violation, validation_problems
from fleet.documents import Path as Place
from fleet.errors import DocumentError
from fleet.sizes.sources import MAX_TRACE_CHARACTERS

FIELD = "power_tree"


def with_files(document: Document, path: Path) -> Document:
    """Replace the file names in the request by the content of the files.

    `buckets: {trace_file: PATH}` becomes `trace_csv`, `expert_loads: {file: PATH}` the counts of a recording,
    `power_tree: {file: PATH}` power domains.
    """
    folder = Path() if path == STDIN else path.parent
    if isinstance(document.data, Mapping) and document.data.get("power_tree") is not None:
        document = with_power_tree(document, folder)
    workloads = document.data.get("workloads") if isinstance(document.data, Mapping) else None
    if not isinstance(workloads, list):
        return document
    filled = [
        _with_loads(document, folder, number, _with_trace(document, folder, number, workload))
        for number, workload in enumerate(workloads)
    ]
    return replace(document, data={**document.data, "workloads": filled})


def _with_trace(document: Document, folder: Path, number: int, workload: Any) -> Any:
    buckets = workload.get("buckets") if isinstance(workload, Mapping) else None
    if not isinstance(buckets, Mapping) or "trace_file" not in buckets:
        return workload
    place = ("workloads", number, "buckets", "trace_file")
    others = {field: value for field, value in buckets.items() if field != "trace_file"}
    if "trace_csv" in others:
        raise _refused(document, (place, "give either trace_file or trace_csv, and not both"))
    return {**workload, "buckets": {"trace_csv": _text(document, place, folder, buckets["trace_file"]), **others}}


def _with_loads(document: Document, folder: Path, number: int, workload: Any) -> Any:
    given = workload.get("expert_loads") if isinstance(workload, Mapping) else None
    if not isinstance(given, Mapping) or "file" not in given:
        return workload
    place = ("workloads", number, "expert_loads", "file")
    others = {field: value for field, value in given.items() if field != "file"}
    if others.keys() & {"tokens", "windows"}:
        raise _refused(document, (place, "give one of file, tokens and windows"))
    given_least = others.get("least_tokens", 0.0)
    least_tokens = (
        float(given_least) if isinstance(given_least, int | float) else 0.0
    )  # validation of the request reports the error
    counts = _counts(document, place, folder, given["file"], least_tokens)
    return {**workload, "expert_loads": {"windows": counts, **others}}


def _counts(document: Document, place: Place, folder: Path, name: Any, least_tokens: float) -> list[Any]:
    from placement.formats import read_loads  # noqa: PLC0415 - readers that few plans need

    if not isinstance(name, str) or not name:
        raise _refused(document, (place, f"expected the path of a recording, got {name!r}"))
    try:
        counts: list[Any] = read_loads(read_bytes(folder / name), name=name, least_tokens=least_tokens).tokens.tolist()
    except DocumentError as error:
        message = "; ".join(map(str, error.problems))
        raise _refused(document, (place, f"{error.name}: {message}")) from error
    return counts


def _text(document: Document, place: Place, folder: Path, name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise _refused(document, (place, f"expected the path of a CSV file, got {name!r}"))
    try:
        return read_text(folder / name, max_bytes=MAX_TRACE_CHARACTERS)
    except DocumentError as error:
        message = "; ".join(problem.message for problem in error.problems)
        raise _refused(document, (place, f"{error.name}: {message}")) from error


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
        raise _refused_tree(document, error.violations) from error
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
        raise _refused_tree(document, validation_problems(error)) from error


def _refused_tree(document: Document, violations: Iterable[Violation]) -> DocumentError:
    return _refused(document, *(((FIELD, *place), message) for place, message in violations))


def _refused(document: Document, *violations: Violation) -> DocumentError:
    return DocumentError(name=document.name, problems=[document.problem(*violation) for violation in violations])
