"""Bearer token authentication with one token from a file, without a database."""

import hmac
from collections.abc import Callable

from fastapi import HTTPException, Request


def bearer(token: str | None) -> Callable[[Request], None]:
    """Return a FastAPI dependency that requires the token; without a token every request is accepted."""

    def check(request: Request) -> None:
        if token is None:
            return
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "expected the bearer token of this process", {"WWW-Authenticate": "Bearer"})

    return check
