"""One secret in a file, asked of whoever may give orders.  The guard needs no database to know it."""

import hmac
from collections.abc import Callable
from pathlib import Path

from fastapi import HTTPException, Request

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


def bearer(token: str | None) -> Callable[[Request], None]:
    """A FastAPI dependency that lets only the holder of the secret in; without a secret everybody."""

    def check(request: Request) -> None:
        if token is None:
            return
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "expected the bearer token of this process", {"WWW-Authenticate": "Bearer"})

    return check
