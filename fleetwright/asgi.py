"""Helpers for small ASGI applications: the path of a request, and a JSON response."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def below(root: str, path: str) -> str:
    """Return the path without the prefix of the mount point."""
    root = root.rstrip("/")
    return path[len(root) :] or "/" if root and (path + "/").startswith(root + "/") else path


def asks_for(path: str, scope: Mapping[str, Any]) -> bool:
    """Return whether this is a request for exactly this path of the application."""
    return scope["type"] == "http" and below(scope.get("root_path", ""), str(scope.get("path", ""))) == path


async def answer_json(send: Send, status: int, body: Mapping[str, Any]) -> None:
    """Send a complete response."""
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
