"""Stored results: solved requests with their results, which never change.

A `ResultType` declares one kind once.  The server builds its routes from the declaration, the client its operations,
the command line its `list` and `show`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

from api.schemas.labels import Labels, ResultName
from fleet.documents import Frozen

RequestT = TypeVar("RequestT", bound=BaseModel)
RecordT = TypeVar("RecordT", bound="ResultHead")
SummaryT = TypeVar("SummaryT", bound="ResultHead")


class ResultHead(Frozen):
    """The fields of every stored result, in a list too."""

    id: str = Field(description="Sorts by time of creation.")
    created_at: datetime
    created_by: str
    name: ResultName | None = Field(default=None, description="As the caller named it.")
    labels: Labels = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultType(Generic[RequestT, RecordT, SummaryT]):
    """One kind of stored result: its place in the API and its types."""

    name: str  # in the database and in messages
    path: str  # below `/v1/`
    field: str  # of the record that holds the result itself
    request: type[RequestT]
    record: type[RecordT]
    summary: type[SummaryT]

    @property
    def has_status(self) -> bool:
        """Is whether the summary has the status of the solver, by which lists select."""
        return "status" in self.summary.model_fields

    def columns(self, result: BaseModel, also: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a list: the fields of these names, and values that are no field of the result."""
        names = self.summary.model_fields.keys() - ResultHead.model_fields.keys() - also.keys()
        return result.model_dump(mode="json", include=set(names)) | dict(also)
