"""Defines the options that name a new stored result and that select results of a list."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from api.cli.common.errors import InputError
from api.cli.common.options import moment_of
from api.schemas.labels import ResultNaming, labels_of, selector_of
from fleet.documents import validation_problems

NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="With --url: name of the stored result, for people.")
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="K=V", help="With --url: label of the stored result; may be given repeatedly."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamingOptions:
    """Holds the name and the labels of a new stored result."""

    name: NameOption = None
    label: LabelOption = None

    def of(self, url: str | None) -> dict[str, Any]:
        """Return the arguments of the client; only a service stores results."""
        if url is None and (self.name is not None or self.label):
            raise InputError("--name, --label: need --url: only a service stores results")
        try:
            labels = labels_of(",".join(self.label)) if self.label else {}
        except ValueError as error:
            raise InputError(f"--label: {error}") from error
        try:
            return ResultNaming(name=self.name, labels=labels).model_dump()
        except ValidationError as error:
            raise InputError(*(f"--name: {message}" for _path, message in validation_problems(error))) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """Holds what selects results of a list."""

    name: Annotated[
        str | None, typer.Option("--name", metavar="TEXT", help="Only results whose name begins with this.")
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K[=V]", help="Only results with this label; may be given repeatedly."),
    ] = None
    created_by: Annotated[
        str | None, typer.Option("--by", metavar="ACTOR", help="Only results of this caller, such as token:ID.")
    ] = None
    created_after: Annotated[
        str | None, typer.Option("--since", metavar="MOMENT", help="Only results from this moment on.")
    ] = None
    created_before: Annotated[
        str | None, typer.Option("--before", metavar="MOMENT", help="Only results before this moment.")
    ] = None

    def chosen(self) -> dict[str, Any]:
        """Return the arguments of the client."""
        selector = ",".join(self.label or ())
        try:
            if selector:
                selector_of(selector)
        except ValueError as error:
            raise InputError(f"--label: {error}") from error
        return {
            "name": self.name,
            "labels": selector or None,
            "created_by": self.created_by,
            "created_after": moment_of("--since", self.created_after),
            "created_before": moment_of("--before", self.created_before),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedFilterOptions(FilterOptions):
    """Holds the same for results of a solver."""

    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only results with this status, such as optimal.")
    ] = None

    def chosen(self) -> dict[str, Any]:
        """Return the arguments of the client.  The import is late: it loads the solvers."""
        from fleet.solvers import SolveStatus  # noqa: PLC0415 - as above

        try:
            status = SolveStatus(self.status) if self.status is not None else None
        except ValueError as error:
            message = f"--status: {self.status!r} is no status, allowed: {', '.join(SolveStatus)}"
            raise InputError(message) from error
        return {**FilterOptions.chosen(self), "status": status}
