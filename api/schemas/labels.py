"""Names and labels of stored results, with the syntax of Kubernetes labels."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from fleet.documents import Frozen

MAX_LABELS: Final = 16
MAX_LABEL_CHARACTERS: Final = 63  # of a key, its prefix included, and of a value
MAX_TEXT_CHARACTERS: Final = MAX_LABELS * (2 * MAX_LABEL_CHARACTERS + 2)
_PART: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_PART}")
_VALUE: Final = re.compile(rf"({_PART})?")

ResultName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


def _require_label_syntax(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        _require_key(key)
        if len(value) > MAX_LABEL_CHARACTERS or not _VALUE.fullmatch(value):
            raise ValueError(
                f"{key}={value}: allowed as value: up to {MAX_LABEL_CHARACTERS} letters, digits, '-', '_' and '.', "
                "with a letter or digit at both ends"
            )
    return labels


def _require_key(key: str) -> None:
    if len(key) > MAX_LABEL_CHARACTERS or not _KEY.fullmatch(key):
        raise ValueError(
            f"{key!r}: allowed as key: up to {MAX_LABEL_CHARACTERS} letters, digits, '-', '_' and '.', with a letter "
            "or digit at both ends, after an optional DNS name and '/'"
        )


Labels = Annotated[dict[str, str], Field(max_length=MAX_LABELS), AfterValidator(_require_label_syntax)]


class ResultNaming(Frozen):
    """The name and the labels that a caller gives to a result."""

    name: ResultName | None = None
    labels: Labels = Field(default_factory=dict)


def labels_of(text: str) -> dict[str, str]:
    """Parse `k=v,k2=v2`; ValueError names the wrong part."""
    found: dict[str, str] = {}
    for key, value in _parts(text):
        if value is None:
            raise ValueError(f"{key!r}: allowed: KEY=VALUE, separated by commas")
        if key in found:
            raise ValueError(f"{key!r} is given twice, expected once")
        found[key] = value
    if len(found) > MAX_LABELS:
        raise ValueError(f"has {len(found)} labels, allowed: at most {MAX_LABELS}")
    return _require_label_syntax(found)


def selector_of(text: str) -> dict[str, str | None]:
    """Parse `k=v,k2`: labels with this value, and labels with any value (None)."""
    found: dict[str, str | None] = {}
    for key, value in _parts(text):
        if value is None:
            _require_key(key)
        else:
            _require_label_syntax({key: value})
        if found.setdefault(key, value) != value:
            raise ValueError(f"{key!r} is given twice, expected once")
    if len(found) > MAX_LABELS:
        raise ValueError(f"selects {len(found)} labels, allowed: at most {MAX_LABELS}")
    return found


def label_text(labels: Mapping[str, str]) -> str:
    """Write labels as `labels_of` reads them."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _parts(text: str) -> Iterator[tuple[str, str | None]]:
    for part in text.split(","):
        key, separator, value = part.strip().partition("=")
        yield key, value if separator else None
