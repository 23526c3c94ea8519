"""The exception tree.

FleetwrightError
├── DocumentError         a file or body breaks its rules: one Problem per defect, each naming field and allowed range
├── UnknownNameError      no catalogue has this name: carries the nearest names
├── UnstatedFigureError   no source states a figure of a GPU that a calculation needs (fleet.gpus)
├── SolverError           the solver failed or contradicted itself (fleet.solvers)
├── ApiError              the service refused with an RFC 9457 problem, or did not respond (api.client)
├── StoreError            the database refused (api.store)
└── ActuationError        a cluster or device refused (deploy)

Each leaf is defined beside the code that raises it; this module has only what every package needs.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class FleetwrightError(Exception):
    """An error that the product reports to its user.  Every other exception is a bug."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One defect of a document: its place, the violation and the allowed values."""

    path: str  # path as in the document: `offers[3].price_usd_per_h`
    message: str  # names the allowed range or values
    line: int | None = None  # 1-based, when the source was a file

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"


class DocumentError(FleetwrightError):
    """A document is not acceptable; none of it was applied."""

    def __init__(self, *, name: str, problems: Iterable[Problem]) -> None:
        self.name = name
        self.problems = tuple(problems)
        super().__init__(f"{name}: " + "; ".join(str(problem) for problem in self.problems))


class UnknownNameError(FleetwrightError):
    """The catalogue has no entry of this name."""

    def __init__(self, *, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.nearest = nearest_names(name, known)
        hint = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        super().__init__(f"unknown {kind} {name!r}{hint}")


def nearest_names(name: str, known: Iterable[str], *, max_names: int = 3) -> tuple[str, ...]:
    """The known names closest to a misspelt one, closest first, comparing without case."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=max_names, cutoff=0.5)
    return tuple(by_folded[folded] for folded in close)
