"""One secret, asked of whoever may give orders.  The guard needs no database to know it."""

import hmac
from collections.abc import Callable

from fastapi import HTTPException, Request


def bearer(token: str | None) -> Callable[[Request], None]:
    """A FastAPI dependency that lets only the holder of the secret in; without a secret everybody."""

    def check(request: Request) -> None:
        if token is None:
            return
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "expected the bearer token of this process", {"WWW-Authenticate": "Bearer"})

    return check
