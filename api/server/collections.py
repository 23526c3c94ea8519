"""Stores collections: named documents of one kind with conditional writes.

A `Collection` declares one kind: the type of its documents, the checks of a write, and the audit detail.  Reading,
replacing and listing are common to all kinds.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from api.schemas.leases import LeaseTerm
from api.schemas.projects import DEFAULT_PROJECT
from api.server.etags import Precondition
from api.server.fencing import refuse_stale
from api.server.problems import not_found
from api.server.projects import WHOLE_FLEET, ProjectAccess
from api.server.service import Service
from api.server.versioned import AuditAction, DocumentKey, DocumentVersion, current, document_version, replace
from api.store import DocumentRecord, Transaction, canonical_json

SpecT = TypeVar("SpecT", bound=BaseModel)
ShownT = TypeVar("ShownT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Entry(Generic[SpecT]):
    """Holds an existing document: its content, version, time and author."""

    name: str
    spec: SpecT
    version: int
    etag: str
    at: datetime
    by: str
    project: str = DEFAULT_PROJECT


@dataclass(frozen=True, slots=True)
class AuditVerbs:
    """Names writes in the audit: `OF.VERB`."""

    of: str
    creates: str = "created"
    replaces: str = "replaced"
    deletes: str = "deleted"


@dataclass(frozen=True, slots=True)
class Preview(Generic[SpecT]):
    """Shows a dry run: the type, and its value for the present document (None: there is none) and the next one."""

    type: type[BaseModel]
    show: Callable[[Entry[SpecT] | None, Entry[SpecT]], BaseModel]


async def _accept(_service: Service, _name: str, _spec: BaseModel, _project: ProjectAccess) -> None:
    """Accept every valid document."""


async def _accept_references(_service: Service, _tx: Transaction, _name: str, _spec: BaseModel | None) -> None:
    """Accept every write: no other document refers to this kind."""


def _whole(spec: BaseModel, _before: DocumentVersion, _after: DocumentVersion) -> Mapping[str, Any]:
    return spec.model_dump(mode="json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection(Generic[SpecT, ShownT]):
    kind: str  # in the store
    path: str  # below `/v1/`, and in the audit
    label: str  # before the name, in problems
    verbs: AuditVerbs
    spec: type[SpecT]
    shown: type[ShownT]
    show: Callable[[Entry[SpecT]], ShownT]
    parse: Callable[[str], SpecT]
    # Checks the document itself, before the precondition.
    validate: Callable[[Service, str, SpecT, ProjectAccess], Awaitable[None]] = _accept
    # Checks references from other documents, in the transaction of the write.  No document: a deletion.
    check_references: Callable[[Service, Transaction, str, SpecT | None], Awaitable[None]] = _accept_references
    detail: Callable[[SpecT, DocumentVersion, DocumentVersion], Mapping[str, Any]] = (
        _whole  # the audit detail of a write
    )
    batch: int = 500  # documents per query of a full scan
    owned: bool = False  # by projects; else by the fleet
    is_own_project: bool = False  # each document is a project, and belongs to the project of its name
    lease: str | None = None  # only the holder of this lease writes
    preview: Preview[SpecT] | None = None  # None: there is no dry run

    async def get(self, tx: Transaction, name: str, *, project: ProjectAccess = WHOLE_FLEET) -> Entry[SpecT]:
        """Return the document; 404 where the project has none."""
        return self.entry(await self.stored(tx, name, project=project))

    async def stored(self, tx: Transaction, name: str, *, project: ProjectAccess = WHOLE_FLEET) -> DocumentRecord:
        """Return the document as stored; 404 where the project has none."""
        found = await tx.documents.head(kind=self.kind, name=name)
        if found is None or found.body is None or (self.owned and not project.includes(found.project)):
            raise not_found(f"{self.label} {name!r}")
        return found

    async def find(self, tx: Transaction, name: str) -> Entry[SpecT] | None:
        found = await current(tx, self._key(name))
        return self._entry(name, found) if found.body is not None else None

    async def page(
        self, tx: Transaction, *, after: str | None, limit: int, project: ProjectAccess = WHOLE_FLEET
    ) -> list[DocumentRecord]:
        """Return the first documents after a name, as stored."""
        visible = project.visible if self.owned else None
        return await tx.documents.heads(kind=self.kind, after=after, limit=limit, project=visible)

    async def all(self, tx: Transaction) -> AsyncIterator[Entry[SpecT]]:
        async for each in self.heads(tx):
            yield self.entry(each)

    async def heads(self, tx: Transaction) -> AsyncIterator[DocumentRecord]:
        """Iterate over every document as stored, by name."""
        after: str | None = None
        while batch := await tx.documents.heads(kind=self.kind, after=after, limit=self.batch):
            for each in batch:
                yield each
            after = batch[-1].name

    def entry(self, stored: DocumentRecord) -> Entry[SpecT]:
        """Parse a document as stored."""
        return self._entry(stored.name, document_version(stored))

    async def put(
        self,
        service: Service,
        name: str,
        spec: SpecT,
        *,
        precondition: Precondition,
        actor: str,
        project: ProjectAccess = WHOLE_FLEET,
        held: LeaseTerm | None = None,
        dry_run: bool = False,
    ) -> tuple[Entry[SpecT] | None, Entry[SpecT]]:
        """Create or replace a document; return what was there before (None: nothing), and what is or would be there."""
        await self.validate(service, name, spec, project)

        async def check(tx: Transaction) -> None:
            if self.lease is not None:
                await refuse_stale(tx, lease=self.lease, held=held, actor=actor)
            await self.check_references(service, tx, name, spec)

        def audit_action(before: DocumentVersion, after: DocumentVersion) -> AuditAction:
            verb = self.verbs.creates if before.body is None else self.verbs.replaces
            return self._audit_action(verb, name, self.detail(spec, before, after))

        before, after = await replace(
            service,
            self._key(name),
            body=canonical_json(spec.model_dump(mode="json")),
            precondition=precondition,
            actor=actor,
            audit_action=audit_action,
            check=check,
            project=self._owner(name, project),
            dry_run=dry_run,
        )
        return self._entry(name, before) if before.body is not None else None, self._entry(name, after)

    async def delete(
        self,
        service: Service,
        name: str,
        *,
        precondition: Precondition,
        actor: str,
        project: ProjectAccess = WHOLE_FLEET,
    ) -> None:
        """Delete a document; its versions stay."""
        await replace(
            service,
            self._key(name),
            body=None,
            precondition=precondition,
            actor=actor,
            audit_action=lambda _before, _after: self._audit_action(self.verbs.deletes, name, {}),
            check=lambda tx: self.check_references(service, tx, name, None),
            project=self._owner(name, project),
        )

    def _owner(self, name: str, project: ProjectAccess) -> ProjectAccess | None:
        if self.is_own_project:
            return ProjectAccess(of_new=name, visible=project.visible)
        return project if self.owned else None

    def _key(self, name: str) -> DocumentKey:
        return DocumentKey(kind=self.kind, name=name)

    def _audit_action(self, verb: str, name: str, detail: Mapping[str, Any]) -> AuditAction:
        return AuditAction(action=f"{self.verbs.of}.{verb}", subject=f"{self.path}/{name}", detail=detail)

    def _entry(self, name: str, found: DocumentVersion) -> Entry[SpecT]:
        if found.body is None or found.etag is None or found.created_at is None or found.created_by is None:
            raise not_found(f"{self.label} {name!r}")
        return Entry(
            name=name,
            spec=self.parse(found.body),
            version=found.version,
            etag=found.etag,
            at=found.created_at,
            by=found.created_by,
            project=found.project,
        )
