"""A limit on the size of request bodies, which are read before authentication."""

from http import HTTPStatus

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Reject bodies over a size: at once by their Content-Length, else as soon as the limit is exceeded."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced[:20]) > self._limit_bytes:
            refusal = {"title": "Content Too Large", "status": 413, "detail": self._detail()}
            await JSONResponse(refusal, 413, {"Connection": "close"})(scope, receive, send)
            return
        seen_bytes = 0

        async def receive_limited() -> Message:
            nonlocal seen_bytes
            message = await receive()
            seen_bytes += len(message.get("body", b""))
            if seen_bytes > self._limit_bytes:
                # FastAPI does not convert this one type while it reads a body.
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._detail(), {"Connection": "close"})
            return message

        await self._app(scope, receive_limited, send)

    def _detail(self) -> str:
        return f"the body is over {self._limit_bytes} bytes"
