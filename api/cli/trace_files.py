"""Requests that name a trace file: the file's text is put in its place before anything else looks at the request.

Only the command line does this, and relative to the request file: a service must not read files that a caller names.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from api.cli.files import STDIN
from api.cli.textfiles import read_text
from fleet.documents import Document
from fleet.documents import Path as Place
from fleet.errors import DocumentError
from fleet.size_sources import MAX_TRACE_CHARACTERS


def with_traces(document: Document, path: Path) -> Document:
    """The request with the text of every `buckets: {trace_file: PATH}` as `trace_csv`; `path` is the request's own."""
    workloads = document.data.get("workloads") if isinstance(document.data, Mapping) else None
    if not isinstance(workloads, list):
        return document
    folder = Path() if path == STDIN else path.parent
    filled = [_filled(document, folder, number, workload) for number, workload in enumerate(workloads)]
    return replace(document, data={**document.data, "workloads": filled})


def _filled(document: Document, folder: Path, number: int, workload: Any) -> Any:
    buckets = workload.get("buckets") if isinstance(workload, Mapping) else None
    if not isinstance(buckets, Mapping) or "trace_file" not in buckets:
        return workload
    place = ("workloads", number, "buckets", "trace_file")
    others = {field: value for field, value in buckets.items() if field != "trace_file"}
    if "trace_csv" in others:
        raise _refused(document, place, "give either trace_file or trace_csv, and not both")
    return {**workload, "buckets": {"trace_csv": _text(document, place, folder, buckets["trace_file"]), **others}}


def _text(document: Document, place: Place, folder: Path, name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise _refused(document, place, f"expected the path of a CSV file, got {name!r}")
    try:
        return read_text(folder / name, most_bytes=MAX_TRACE_CHARACTERS)
    except DocumentError as error:
        message = "; ".join(problem.message for problem in error.problems)
        raise _refused(document, place, f"{error.name}: {message}") from error


def _refused(document: Document, place: Place, message: str) -> DocumentError:
    return DocumentError(name=document.name, problems=[document.problem(place, message)])
