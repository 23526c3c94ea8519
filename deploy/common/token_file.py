"""A secret in a file.  By itself, so that who only shows a secret need not load what asks for one."""

from pathlib import Path

from fleet.errors import FleetwrightError

SHORTEST = 16


class TokenFileError(FleetwrightError):
    """The file with the secret cannot be used."""


def read_token_file(path: Path) -> str:
    """The secret, without the line's end."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(token) < SHORTEST or any(character.isspace() for character in token):
        raise TokenFileError(f"{path}: expected one line of at least {SHORTEST} characters without spaces")
    return token
