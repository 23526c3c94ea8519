"""Describes the kinds of catalogue documents for the command line."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from api.cli.common.errors import InputError
from api.cli.common.files import read_document, read_file
from api.cli.common.tables import Table
from fleet.documents import Document, read_model
from fleet.gpus import GpuCatalogue, builtin_gpus

DocumentT = TypeVar("DocumentT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[DocumentT]):
    """Describes one kind of document and its tables."""

    name: str
    entry_name: str  # the noun for one entry
    model: type[DocumentT]
    builtin: Callable[[], DocumentT]
    overlaid: Callable[[DocumentT, DocumentT], DocumentT] | None  # None: a file replaces the shipped document
    table: Callable[[DocumentT], Table]
    names: Callable[[DocumentT], Iterable[str]]
    entry: Callable[[DocumentT, str], BaseModel]
    derived: Callable[[DocumentT, Any], dict[str, Any]]  # figures derived from the fields of an entry
    require_known: Callable[[Document, DocumentT, GpuCatalogue], None] | None = None  # checks the GPUs that it names

    @property
    def file_help(self) -> str:
        if self.overlaid is None:
            return "File to use instead of the shipped document."
        return "File to lay over the shipped document; repeatable."

    def read(self, path: Path, *, gpus: GpuCatalogue) -> DocumentT:
        """Read a file and check it alone and against the known GPUs."""
        document = read_document(path)
        value = read_model(document, self.model)
        if self.require_known is not None:
            self.require_known(document, value, gpus)
        return value

    def local(self, files: Sequence[Path]) -> DocumentT:
        """Merge the files over the shipped document in order; a kind without merging takes one file instead of it."""
        if self.overlaid is not None:
            value = self.builtin()
            for path in files:
                value = self.overlaid(value, read_file(path, self.model))
            return value
        if len(files) > 1:
            raise InputError(f"--file: give one; two files of {self.name} are not laid over one another")
        return read_file(files[0], self.model) if files else self.builtin()


def known_gpus(file: Path | None) -> GpuCatalogue:
    """Return the shipped catalogue, with the file merged over it."""
    return builtin_gpus() if file is None else builtin_gpus().overlaid(read_file(file, GpuCatalogue))
