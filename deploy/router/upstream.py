"""The interface of one deployment that a router sends requests to."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from deploy.router.openai import Headers, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status and headers of a response."""

    status: int
    headers: Headers


class Answer(Protocol):
    head: Head

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's parts as they arrive.  Raise UpstreamError where the response fails."""
        ...

    def close(self) -> None:
        """Cancel the request at the engine where it has not ended."""
        ...


class Upstream(Protocol):
    """One deployment."""

    async def ask(self, question: Question) -> Answer:
        """Send a request and return with the head of the response, or raise UpstreamError."""
        ...

    def abandon(self) -> None:
        """The deployment has no replica: fail requests without a response, so that they go to another route."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
