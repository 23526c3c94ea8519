"""Reads the catalogues in force for a job: as text in the worker, as models in the job's process."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel

from api.schemas.documents import DocumentKind
from api.store import Transaction
from fleet.documents import read_stored
from fleet.gpus import GpuCatalogue, builtin_gpus
from fleet.models import ModelCatalogue, builtin_models
from fleet.offers import PriceSheet, builtin_prices
from fleet.stock import Stock
from fleet.topology import Topology

ModelT = TypeVar("ModelT", bound=BaseModel)
SINGLE: Final = "default"  # each kind has one document
SHIPPED: Final = 0
STOCKS_KIND: Final = "stocks"  # of the documents in the store
MAX_STOCKS: Final = 100
_STOCK: Final = "stock/"  # before the name of a stock among the inputs
_REFERS_TO_STOCK: Final = re.compile(r'"stock"\s*:\s*\{')


class CatalogueText(NamedTuple):
    """The stored body of a catalogue with its version; version 0 is the shipped catalogue, which is not stored."""

    version: int = SHIPPED
    body: str | None = None


CatalogueTexts = dict[str, CatalogueText]


async def catalogue_texts(tx: Transaction, *kinds: DocumentKind) -> CatalogueTexts:
    """Return the catalogues in force."""
    heads = {kind.value: await tx.documents.head(kind=kind, name=SINGLE) for kind in kinds}
    return {
        name: CatalogueText(head.version, head.body) if head is not None else CatalogueText()
        for name, head in heads.items()
    }


async def plan_texts(tx: Transaction, request: str) -> CatalogueTexts:
    """Return the catalogues that a plan is solved with; also the stocks, where the request or an offer names one."""
    texts = await catalogue_texts(tx, DocumentKind.GPUS, DocumentKind.MODELS, DocumentKind.OFFERS)
    if any(_REFERS_TO_STOCK.search(text) for text in (request, texts[DocumentKind.OFFERS].body or "")):
        stored = await tx.documents.heads(kind=STOCKS_KIND, after=None, limit=MAX_STOCKS)
        texts |= {f"{_STOCK}{each.name}": CatalogueText(each.version, each.body) for each in stored}
    return texts


def kept_texts(text: str) -> CatalogueTexts:
    """Read catalogues that a job has kept as JSON."""
    return {name: CatalogueText(*value) for name, value in json.loads(text).items()}


def versions_of(inputs: Mapping[str, Any]) -> dict[str, int]:
    """Return the versions of the catalogues among the inputs of a job."""
    return {name: value.version for name, value in inputs.items() if isinstance(value, CatalogueText)}


def gpus_of(inputs: Any) -> GpuCatalogue:
    return _builtin_gpus() if (text := inputs[DocumentKind.GPUS].body) is None else _read(GpuCatalogue, text)


def models_of(inputs: Any) -> ModelCatalogue:
    return _builtin_models() if (text := inputs[DocumentKind.MODELS].body) is None else _read(ModelCatalogue, text)


def offers_of(inputs: Any) -> PriceSheet:
    return _builtin_prices() if (text := inputs[DocumentKind.OFFERS].body) is None else _read(PriceSheet, text)


def stocks_of(inputs: Mapping[str, Any]) -> dict[str, Stock]:
    return {
        name.removeprefix(_STOCK): _read(Stock, value.body)
        for name, value in inputs.items()
        if name.startswith(_STOCK) and value.body is not None
    }


def topology_of(inputs: Any) -> Topology:
    return Topology() if (text := inputs[DocumentKind.TOPOLOGY].body) is None else _read(Topology, text)


def _read(model: type[ModelT], text: str) -> ModelT:
    return read_stored(model, text)


# The process that job processes are forked from has read these before; see `api.jobs.process`.
_builtin_gpus = lru_cache(maxsize=1)(builtin_gpus)
_builtin_models = lru_cache(maxsize=1)(builtin_models)
_builtin_prices = lru_cache(maxsize=1)(builtin_prices)


def read_builtin() -> None:
    """Read the shipped catalogues once."""
    _builtin_gpus()
    _builtin_models()
    _builtin_prices()
