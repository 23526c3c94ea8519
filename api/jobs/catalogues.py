"""Reads the catalogues in force for a job: as text in the worker, as models in the job's process."""

from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from api.schemas.documents import DocumentKind
from api.store import Transaction
from fleet.documents import read_stored
from fleet.gpus import GpuCatalogue, builtin_gpus
from fleet.models import ModelCatalogue, builtin_models
from fleet.offers import PriceSheet, builtin_prices
from fleet.topology import Topology

ModelT = TypeVar("ModelT", bound=BaseModel)
SINGLE: Final = "default"  # each kind has one document


async def catalogue_texts(tx: Transaction, *kinds: DocumentKind) -> dict[str, str | None]:
    """Return the stored bodies in force; None for a catalogue that is as shipped."""
    heads = {kind.value: await tx.documents.head(kind=kind, name=SINGLE) for kind in kinds}
    return {name: head.body if head is not None else None for name, head in heads.items()}


def gpus_of(inputs: Any) -> GpuCatalogue:
    return _builtin_gpus() if (text := inputs[DocumentKind.GPUS.value]) is None else _read(GpuCatalogue, text)


def models_of(inputs: Any) -> ModelCatalogue:
    return _builtin_models() if (text := inputs[DocumentKind.MODELS.value]) is None else _read(ModelCatalogue, text)


def offers_of(inputs: Any) -> PriceSheet:
    return _builtin_prices() if (text := inputs[DocumentKind.OFFERS.value]) is None else _read(PriceSheet, text)


def topology_of(inputs: Any) -> Topology:
    return Topology() if (text := inputs[DocumentKind.TOPOLOGY.value]) is None else _read(Topology, text)


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
