"""Reads, replaces and lists the versions of a catalogue document at a service."""

import itertools
from pathlib import Path
from typing import Generic

from api.cli.catalogues.kinds import DocumentT, Kind
from api.cli.common.remote import connect
from api.client import DocumentType, Versioned
from api.schemas.documents import DocumentKind, VersionInfo


class RemoteDocument(Generic[DocumentT]):
    def __init__(self, kind: Kind[DocumentT], *, url: str | None, token_file: Path | None) -> None:
        self._type = DocumentType(DocumentKind(kind.name), kind.model)
        self._url = url
        self._token_file = token_file

    def fetch(self, version: int | None = None) -> Versioned[DocumentT]:
        """Read the current version, or an earlier one."""
        with connect(self._url, self._token_file) as client:
            if version is None:
                return client.get_document(self._type)
            return client.get_document_version(self._type, version)

    def replace(self, document: DocumentT, *, etag: str | None) -> str:
        """Replace the version of this ETag (None: the current one) and return the new ETag."""
        with connect(self._url, self._token_file) as client:
            replaced = etag or client.get_document(self._type).etag
            return client.replace_document(self._type, document, if_match=replaced).etag

    def versions(self, most: int) -> list[VersionInfo]:
        with connect(self._url, self._token_file) as client:
            return list(itertools.islice(client.iter_document_versions(self._type), most))
