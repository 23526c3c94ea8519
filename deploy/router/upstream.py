"""What a router sends requests to: one deployment, however it is reached."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from deploy.router.openai import Headers, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Begin of an answer."""

    status: int
    headers: Headers


class Answer(Protocol):
    """One answer, as it comes."""

    head: Head

    def chunks(self) -> AsyncIterator[bytes]:
        """The body's parts, as they come; raises UpstreamError when it breaks off."""
        ...

    def close(self) -> None:
        """End it there too, where it has not ended."""
        ...


class Upstream(Protocol):
    """One deployment."""

    async def ask(self, question: Question) -> Answer:
        """Send a request; returns with the head of the answer, or raises UpstreamError."""
        ...

    def abandon(self) -> None:
        """It has no replica any more: end what has no answer yet with an UpstreamError, so that it goes elsewhere."""
        ...

    async def close(self) -> None:
        """No more requests."""
        ...
