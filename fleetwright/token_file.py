"""A secret in a file."""

from pathlib import Path
from typing import Final

MIN_CHARACTERS: Final = 16


def read_token(path: Path) -> str:
    """Return the secret, without the line's end.  Raise ValueError, which names the file and never its content."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(token) < MIN_CHARACTERS or any(character.isspace() for character in token):
        raise ValueError(f"{path}: expected one line of at least {MIN_CHARACTERS} characters without spaces")
    return token
