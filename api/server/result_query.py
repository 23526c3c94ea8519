"""Reads the name and labels of a new result, and the filters of a list of results, from the query of a request."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Query, Request
from pydantic import AwareDatetime, StringConstraints, TypeAdapter, ValidationError

from api.schemas.labels import MAX_TEXT_CHARACTERS, ResultName, ResultNaming, labels_of, selector_of
from api.server.audit_query import storable
from api.server.problems import invalid
from api.store import ResultFilter
from fleet.solvers import SolveStatus

ACTOR = StringConstraints(pattern=r"^[!-~]{1,200}$")
_NAME: Final = TypeAdapter(ResultName)


async def _naming(
    name: Annotated[ResultName | None, Query(description="Name of the result, for people.")] = None,
    labels: Annotated[
        str | None,
        Query(
            max_length=MAX_TEXT_CHARACTERS,
            description="Labels of the result, `k=v,k2=v2`: at most 16, with the syntax of Kubernetes labels.",
        ),
    ] = None,
) -> None:
    """Document the parameters; `naming_of` reads them, also for a body that is not read here."""


NAMING: Final = Depends(_naming)


def naming_of(request: Request) -> ResultNaming | None:
    """Return the name and the labels of the result that a request creates; None without both."""
    name, labels = request.query_params.get("name"), request.query_params.get("labels")
    if name is None and labels is None:
        return None
    if name is not None:
        try:
            _NAME.validate_python(name)
        except ValidationError:
            raise invalid("query.name", "allowed: 1 to 200 characters without control characters") from None
    try:
        return ResultNaming(name=name, labels=labels_of(labels) if labels is not None else {})
    except ValueError as error:
        raise invalid("query.labels", str(error)) from None


@dataclass(frozen=True, slots=True)
class ResultQuery:
    """Selects results of a list."""

    name: Annotated[ResultName | None, Query(description="The beginning of the name.")] = None
    labels: Annotated[
        str | None,
        Query(max_length=MAX_TEXT_CHARACTERS, description="Labels that results have: `k=v`, or `k` for any value."),
    ] = None
    created_by: Annotated[Annotated[str, ACTOR] | None, Query(description="Only results of this caller.")] = None
    created_after: Annotated[AwareDatetime | None, Query(description="Created at this moment or later.")] = None
    created_before: Annotated[AwareDatetime | None, Query(description="Created before this moment.")] = None

    def chosen(self) -> ResultFilter:
        try:
            labels = selector_of(self.labels) if self.labels is not None else {}
        except ValueError as error:
            raise invalid("query.labels", str(error)) from None
        return ResultFilter(
            name_prefix=self.name,
            labels=labels,
            created_by=self.created_by,
            created_after=storable("created_after", self.created_after),
            created_before=storable("created_before", self.created_before),
            status=self._status(),
        )

    def _status(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class SolvedQuery(ResultQuery):
    """Selects results of a kind whose summary has the status of the solver."""

    status: Annotated[SolveStatus | None, Query(description="Only results with this status.")] = None

    def _status(self) -> str | None:
        return self.status.value if self.status is not None else None
