"""Reads and replaces versioned documents: catalogues, targets and the freeze.

A write names the version that it replaces.  Two writers that name the same version race for the primary key of the next
one; the loser gets the same 412 as a later writer.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from fastapi.responses import Response

from api.schemas.projects import DEFAULT_PROJECT
from api.server.etags import Precondition, etag_of, is_current
from api.server.problems import ProblemError, conflict, not_found
from api.server.projects import KIND as PROJECTS
from api.server.projects import ProjectAccess, refuse_over_quota
from api.server.service import Service
from api.store import ConflictError, DocumentRecord, Transaction


@dataclass(frozen=True, slots=True)
class DocumentKey:
    """Names the place of a document, and its shipped body (None: none)."""

    kind: str
    name: str
    shipped: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """Holds one version of a document.  Without a body the document does not exist: never written, or deleted."""

    version: int
    body: str | None
    created_at: datetime | None = None
    created_by: str | None = None
    project: str = DEFAULT_PROJECT

    @property
    def etag(self) -> str | None:
        """Is None where no document exists."""
        return etag_of(version=self.version, body=self.body) if self.body is not None else None


@dataclass(frozen=True, slots=True)
class AuditAction:
    """Describes the audit entry of a write."""

    action: str
    subject: str
    detail: Mapping[str, Any]


class _DryRunEnd(Exception):  # noqa: N818 - no error
    """Ends the transaction of a dry run, which the database then rolls back."""

    def __init__(self, before: DocumentVersion, after: DocumentVersion) -> None:
        self.versions = before, after

    @classmethod
    def raise_if(cls, dry_run: bool, before: DocumentVersion, after: DocumentVersion) -> None:  # noqa: FBT001
        if dry_run:
            raise cls(before, after)


async def current(tx: Transaction, key: DocumentKey) -> DocumentVersion:
    """Return the version in force."""
    head = await tx.documents.head(kind=key.kind, name=key.name)
    return document_version(head) if head is not None else DocumentVersion(version=0, body=key.shipped)


def document_version(stored: DocumentRecord) -> DocumentVersion:
    return DocumentVersion(
        version=stored.version,
        body=stored.body,
        created_at=stored.created_at,
        created_by=stored.created_by,
        project=stored.project,
    )


async def replace(
    service: Service,
    key: DocumentKey,
    *,
    body: str | None,
    precondition: Precondition,
    actor: str,
    audit_action: Callable[[DocumentVersion, DocumentVersion], AuditAction],
    check: Callable[[Transaction], Awaitable[None]] | None = None,
    project: ProjectAccess | None = None,
    dry_run: bool = False,
) -> tuple[DocumentVersion, DocumentVersion]:
    """Add the next version (no body deletes) if the precondition and `check` hold; return both versions.

    A document that projects own has the project of its first version; `project` (None: the fleet owns the document)
    must see it.  A dry run makes every check of the write, and then rolls it back.
    """
    try:
        async with service.store.transaction() as tx:
            before = await current(tx, key)
            if project is not None and before.body is not None and not project.includes(before.project):
                raise _of_another_project(key, precondition)
            precondition.check(current=before.etag)
            if check is not None:
                await check(tx)
            owner = DEFAULT_PROJECT
            if project is not None:
                owner = before.project if before.body is not None else project.of_new
                if body is not None and key.kind != PROJECTS:
                    await refuse_over_quota(tx, owner, now=service.now(), new_bytes=len(body))
            after = document_version(
                await tx.documents.add_version(
                    kind=key.kind,
                    name=key.name,
                    after=before.version,
                    body=body,
                    created_at=service.now(),
                    created_by=actor,
                    project=owner,
                )
            )
            _DryRunEnd.raise_if(dry_run, before, after)
            done = audit_action(before, after)
            await service.audit(
                tx,
                actor=actor,
                action=done.action,
                subject=done.subject,
                detail=done.detail,
                project=owner if project is not None else None,
            )
    except _DryRunEnd as end:
        return end.versions
    except ConflictError:  # another version was stored between the read and the write
        async with service.store.reading() as tx:
            precondition.check(current=(await current(tx, key)).etag)
        raise
    return before, after


def _of_another_project(key: DocumentKey, precondition: Precondition) -> ProblemError:
    if precondition.must_not_exist:
        return conflict(f"{key.kind}: the name {key.name!r} is taken in another project; names are unique")
    return not_found(f"{key.kind.removesuffix('s')} {key.name!r}")


def send(found: DocumentVersion, *, if_none_match: str | None = None) -> Response:
    return send_body(found.body or "", etag=found.etag or "", if_none_match=if_none_match)


def send_body(body: str, *, etag: str, if_none_match: str | None = None, status: int = HTTPStatus.OK) -> Response:
    """Respond with a body and its tag, or with 304 when the caller has this version."""
    headers = {"ETag": etag}
    if is_current(if_none_match, etag=etag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(content=body, status_code=status, media_type="application/json", headers=headers)
