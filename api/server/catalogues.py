"""Defines the four catalogue documents: types, shipped versions and references between them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from api.schemas.documents import DocumentKind
from api.server.etags import Precondition
from api.server.service import Service
from api.server.versioned import AuditAction, DocumentKey, DocumentVersion, current, replace
from api.store import Transaction, canonical_json
from fleet.documents import dotted, read_stored
from fleet.errors import DocumentError, Problem
from fleet.gpus import GpuCatalogue, builtin_gpus, unknown_gpus
from fleet.models import ModelCatalogue, builtin_models
from fleet.offers import PriceSheet, builtin_prices
from fleet.topology import Topology

ModelT = TypeVar("ModelT", bound=BaseModel)
SINGLE = "default"  # each kind has one document; the store has named documents


@dataclass(frozen=True)
class Catalogue(Generic[ModelT]):
    kind: DocumentKind
    model: type[ModelT]
    builtin: Callable[[], ModelT]

    @cached_property
    def key(self) -> DocumentKey:
        """Is the key in the store; version 0 ships with the product."""
        return DocumentKey(kind=self.kind, name=SINGLE, shipped=self.write(self.builtin()))

    def write(self, value: ModelT) -> str:
        return canonical_json(value.model_dump(mode="json"))

    async def in_force(self, tx: Transaction) -> ModelT:
        return read_stored(self.model, (await current(tx, self.key)).body or "")


GPUS = Catalogue(kind=DocumentKind.GPUS, model=GpuCatalogue, builtin=builtin_gpus)
MODELS = Catalogue(kind=DocumentKind.MODELS, model=ModelCatalogue, builtin=builtin_models)
OFFERS = Catalogue(kind=DocumentKind.OFFERS, model=PriceSheet, builtin=builtin_prices)
TOPOLOGY = Catalogue(kind=DocumentKind.TOPOLOGY, model=Topology, builtin=Topology)
ALL: tuple[Catalogue[Any], ...] = (GPUS, MODELS, OFFERS, TOPOLOGY)


async def replace_catalogue(
    service: Service, catalogue: Catalogue[ModelT], value: ModelT, *, precondition: Precondition, actor: str
) -> DocumentVersion:
    """Store the next version if the precondition holds and the references of the other catalogues stay valid."""

    def audit_action(before: DocumentVersion, after: DocumentVersion) -> AuditAction:
        detail = {"etag_before": before.etag, "etag": after.etag}
        return AuditAction(action="document.replaced", subject=f"{catalogue.kind}/{after.version}", detail=detail)

    async def check(tx: Transaction) -> None:
        await _check_references(tx, value)

    _before, after = await replace(
        service,
        catalogue.key,
        body=catalogue.write(value),
        precondition=precondition,
        actor=actor,
        audit_action=audit_action,
        check=check,
    )
    return after


async def _check_references(tx: Transaction, value: BaseModel) -> None:
    """Check that offers and topology name only known GPUs after the write.

    Runs under the lock of all writers: two concurrent writers could each pass the check and together break a reference.
    """
    await tx.audit.lock()
    if isinstance(value, PriceSheet | Topology):
        _require_known(value, await GPUS.in_force(tx), name="")
    elif isinstance(value, GpuCatalogue):
        _require_known(await OFFERS.in_force(tx), value, name="offers document: ")
        _require_known(await TOPOLOGY.in_force(tx), value, name="topology document: ")


def _require_known(value: PriceSheet | Topology, gpus: GpuCatalogue, *, name: str) -> None:
    problems = [Problem(name + dotted(path), reason) for path, reason in unknown_gpus(value.gpu_mentions(), gpus)]
    if problems:
        raise DocumentError(name=name or "body", problems=problems)
