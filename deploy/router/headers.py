"""Headers that end at the router: those of one connection (RFC 9110, section 7.6.1) and those that the ASGI server has
handled.  All others are forwarded unchanged and in order.
"""

from collections.abc import Sequence

Headers = Sequence[tuple[bytes, bytes]]

OF_ONE_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
OF_REQUESTS = OF_ONE_HOP | {b"expect", b"host"}  # the router has read the body, and the host is another


def request_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers for the deployment."""
    return _without(headers, OF_REQUESTS)


def answer_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers for the caller; names in lower case, as ASGI requires."""
    return _without([(name.lower(), value) for name, value in headers], OF_ONE_HOP)


def _without(headers: Headers, left_out: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    if named:
        left_out = left_out | named
    return [(name, value) for name, value in headers if name.lower() not in left_out]
