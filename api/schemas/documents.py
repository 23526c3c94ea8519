"""Versioned documents: `GET` returns an ETag, `PUT` takes it as `If-Match`, every version stays readable."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from fleet.documents import Frozen


class DocumentKind(StrEnum):
    """The catalogue documents, one of each."""

    GPUS = "gpus"
    MODELS = "models"
    OFFERS = "offers"
    TOPOLOGY = "topology"


class VersionInfo(Frozen):
    """One stored version of a document.  Version 0 ships with the product and is not stored."""

    version: int = Field(ge=0)
    etag: str
    created_at: datetime | None = None
    created_by: str | None = None
