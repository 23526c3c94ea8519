"""Text from other programs and several notes as one line, for reports and logs; digests of change sets.  Pure."""

import hashlib
import json
import re
from typing import Any

MESSAGE_MAX_CHARS = 500
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")


def joined(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None


def one_line(text: str) -> str:
    """Shorten a message for a report: errors of other programs contain line ends and have any length."""
    flat = _CONTROL_CHARACTERS.sub(" ", text).strip()
    return flat if len(flat) <= MESSAGE_MAX_CHARS else flat[: MESSAGE_MAX_CHARS - 1] + "…"


def first_line(text: str, *, default: str = "nothing", max_chars: int = 200) -> str:
    return next((line for line in text.strip().splitlines() if line.strip()), default)[:max_chars]


def member_or_line(body: str | bytes, member: str) -> str:
    """Return a member of a JSON error body; else the first line of the body."""
    try:
        return str(json.loads(body)[member])
    except (ValueError, KeyError, TypeError):
        return first_line(body.decode(errors="replace") if isinstance(body, bytes) else body)


def reason_of(error: BaseException) -> str:
    """Return the first line of an error, or its type where it has no message; of a group, the first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return first_line(str(error), default=type(error).__name__, max_chars=500)


def digest_of_json(value: Any) -> str:
    """Return the digest that operators approve, equal for equal values; the order of mapping entries matters."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()
