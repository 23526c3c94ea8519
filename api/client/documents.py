"""Names the four catalogue documents, each with its type, so that `client.get_document(GPUS)` is a typed call."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from api.schemas.documents import DocumentKind
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import PriceSheet
from fleet.topology import Topology

DocumentT = TypeVar("DocumentT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class DocumentType(Generic[DocumentT]):
    """Names one kind of document: its place in the API and its type."""

    kind: DocumentKind
    model: type[DocumentT]


GPUS = DocumentType(DocumentKind.GPUS, GpuCatalogue)
MODELS = DocumentType(DocumentKind.MODELS, ModelCatalogue)
OFFERS = DocumentType(DocumentKind.OFFERS, PriceSheet)
TOPOLOGY = DocumentType(DocumentKind.TOPOLOGY, Topology)
