"""GPU names in offers and topologies: resolution against the catalogue."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from fleet.documents import Document, Violation
from fleet.errors import DocumentError, Problem, UnknownNameError


class GpuNames(Protocol):
    """The interface of a GPU catalogue."""

    def get(self, name: str, /) -> object: ...


def unknown_gpus(mentions: Iterable[Violation], gpus: GpuNames) -> Iterator[Violation]:
    """The mentions (path, name) that the catalogue cannot resolve, each with the reason."""
    reasons: dict[str, str | None] = {}
    for path, name in mentions:
        if name not in reasons:
            reasons[name] = _reason(name, gpus)
        reason = reasons[name]
        if reason is not None:
            yield path, reason


def require_known_gpus(document: Document, mentions: Iterable[Violation], gpus: GpuNames) -> None:
    """Raise DocumentError, with lines, when a document mentions an unknown GPU."""
    problems: list[Problem] = [document.problem(path, reason) for path, reason in unknown_gpus(mentions, gpus)]
    if problems:
        raise DocumentError(name=document.name, problems=problems)


def _reason(name: str, gpus: GpuNames) -> str | None:
    try:
        gpus.get(name)
    except UnknownNameError as error:
        return str(error)
    return None
