"""Sessions of browsers: a cookie that scripts cannot read stands for a token.

A session is a row among the tokens.  Its secret is in a cookie (HttpOnly, SameSite=Strict), and its rights and its name
in the audit are those of the token that opened it.  Three checks keep other sites from using the cookie:

- the browser sends it only with requests from pages of this site (SameSite);
- the service accepts it only where `Sec-Fetch-Site` or `Origin` shows that the page is from the same origin;
- a write also needs a header that only a page of this origin can know: `X-CSRF-Token`, derived from the secret.
"""

import hashlib
import hmac
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request, Response

from api.server.problems import ProblemError

COOKIE: Final = "fleetwright_session"
CSRF_HEADER: Final = "X-CSRF-Token"
LIFETIME: Final = timedelta(hours=8)  # a working day
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# `none`: the user opened the address; such a request is never a write.
SAME_ORIGIN: Final = frozenset({"same-origin", "none"})


def session_cookie(request: Request) -> str | None:
    """Return the secret of the session that the request names; None for a request of another site's page."""
    return request.cookies.get(COOKIE) if _is_same_origin(request) else None


def csrf_token(secret: str) -> str:
    return hmac.new(secret.encode(), b"fleetwright csrf", hashlib.sha256).hexdigest()


def require_csrf_token(request: Request, secret: str) -> None:
    """Refuse a write of a session without its CSRF token."""
    if request.method in SAFE_METHODS:
        return
    given = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf_token(secret).encode()):
        raise ProblemError(
            status=HTTPStatus.FORBIDDEN,
            kind="csrf-token",
            detail=f"header.{CSRF_HEADER}: a write of a session needs its csrf_token, which GET /v1/session returns",
        )


def set_session(response: Response, request: Request, secret: str, *, now: datetime, expires_at: datetime) -> None:
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int((expires_at - now).total_seconds()),
        path="/",
        secure=_is_https(request),
        httponly=True,
        samesite="strict",
    )


def clear_session(response: Response, request: Request) -> None:
    response.delete_cookie(COOKIE, path="/", secure=_is_https(request), httponly=True, samesite="strict")


def _is_same_origin(request: Request) -> bool:
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site in SAME_ORIGIN
    # A browser that does not send Sec-Fetch-Site sends Origin with every write.
    if (origin := request.headers.get("origin")) is None:
        return request.method in SAFE_METHODS
    try:
        return urlsplit(origin).netloc == request.headers.get("host", "")
    except ValueError:  # unclosed brackets
        return False


def _is_https(request: Request) -> bool:
    """Check whether the browser uses TLS; behind a proxy that ends it, only the page's origin shows that."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
