"""The base of the catalogues: entries with a name and aliases, looked up without case, with overlays.

Lookups compare normalised names.  One alias therefore covers the spellings of NVML ("NVIDIA H100 80GB HBM3"), of
NVIDIA's Kubernetes labels ("NVIDIA-H100-80GB-HBM3") and of AMD's ("AMD_Instinct_MI300X_OAM").
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import resources
from typing import Annotated, ClassVar, Generic, Self, TypeVar

from pydantic import Field, model_validator

from fleet.documents import Document, Frozen, Path, RuleError, parse_document
from fleet.errors import DocumentError, Problem, UnknownNameError

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")]


class Entry(Frozen):
    """An entry of a catalogue: its name and the names that other tools give it."""

    name: Name
    aliases: tuple[Name, ...] = ()

    @property
    def folded_names(self) -> frozenset[str]:
        return frozenset(map(folded, (self.name, *self.aliases)))


EntryT = TypeVar("EntryT", bound=Entry)


class Catalogue(Frozen, Generic[EntryT]):
    """Entries with unique names.  A subclass names their kind and the field that holds them."""

    kind: ClassVar[str]
    field: ClassVar[str]

    @property
    def entries(self) -> tuple[EntryT, ...]:
        found: tuple[EntryT, ...] = getattr(self, self.field)
        return found

    @cached_property
    def index(self) -> dict[str, EntryT]:
        return {name: entry for entry in self.entries for name in entry.folded_names}

    def get(self, name: str) -> EntryT:
        """The entry of this name or alias, in any case; UnknownNameError carries the nearest names."""
        entry = self.index.get(folded(name))
        if entry is None:
            known = (candidate for each in self.entries for candidate in (each.name, *each.aliases))
            raise UnknownNameError(kind=self.kind, name=name, known=known)
        return entry

    def overlaid(self, other: Self) -> Self:
        """Overlay another catalogue: an equal name replaces an entry, a new one extends, a claimed alias moves."""
        theirs = {folded(entry.name): entry for entry in other.entries}
        claimed = frozenset(other.index)
        laid = [theirs.pop(folded(entry.name), None) or _without(entry, claimed, self.kind) for entry in self.entries]
        return type(self).model_validate({self.field: (*laid, *theirs.values())})

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        RuleError.raise_for(_clashes(self.entries, field=self.field))
        return self


def folded(name: str) -> str:
    """The form in which names are compared: no case, and a space or underscore is a hyphen."""
    return name.casefold().replace(" ", "-").replace("_", "-")


def shipped_document(file_name: str) -> Document:
    text = resources.files("fleet").joinpath("data", file_name).read_text(encoding="utf-8")
    return parse_document(text, name=f"fleet/data/{file_name}")


def _clashes(entries: Sequence[Entry], *, field: str) -> Iterator[tuple[Path, str]]:
    owners: dict[str, int] = {}
    for position, entry in enumerate(entries):
        for name in (entry.name, *entry.aliases):
            owner = owners.setdefault(folded(name), position)
            if owner != position:
                yield (field, position), f"{name!r} must be unique, but already names {entries[owner].name!r}"


def _without(entry: EntryT, claimed: frozenset[str], kind: str) -> EntryT:
    """The entry without the aliases that a newer entry claims; an entry's own name cannot be claimed."""
    if folded(entry.name) in claimed:
        message = f"{entry.name!r} is the name of another entry below; replace that entry or choose another alias"
        raise DocumentError(name=f"{kind} catalogue", problems=[Problem("aliases", message)])
    kept = tuple(alias for alias in entry.aliases if folded(alias) not in claimed)
    return entry if kept == entry.aliases else entry.model_copy(update={"aliases": kept})
