"""Builds dependencies that run on the event loop.

FastAPI calls a class, as every function that is not a coroutine, in a thread: two switches of threads in each request.
"""

import inspect
from typing import Any

from fastapi import Depends


def parameters_of(kind: type) -> Any:
    """Return the dependency on an instance of `kind`, whose fields are the parameters of the request."""

    async def build(**values: Any) -> Any:
        return kind(**values)

    build.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]  # FastAPI reads it
    return Depends(build)
