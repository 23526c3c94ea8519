"""Versioned documents: read with an ETag, replace with `If-Match`, every version kept."""

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
    """One stored version of a document.  Version 0 is what ships with the product and is not stored."""

    version: int = Field(ge=0)
    etag: str
    created_at: datetime | None = None
    created_by: str | None = None
