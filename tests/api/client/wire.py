"""A test transport: prepared responses, and the requests that it received."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from api.schemas.problems import PROBLEM_MEDIA_TYPE, ProblemDetails

Answer = httpx.Response | type[httpx.TransportError]


@dataclass
class Wire:
    """Returns its responses in order and repeats the last one."""

    answers: Sequence[Answer]
    requests: list[httpx.Request] = field(default_factory=list)

    @property
    def transport(self) -> httpx.MockTransport:
        """A transport for either client."""
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        if isinstance(answer, httpx.Response):
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        raise answer("broken on purpose", request=request)


def problem(status: int, *, retry_after: str | None = None, **members: object) -> httpx.Response:
    """An error response in the format of the service."""
    body = ProblemDetails.model_validate(
        {"type": "urn:fleetwright:problem:x", "title": "No", "status": status} | members
    )
    headers = {"Content-Type": PROBLEM_MEDIA_TYPE} | ({"Retry-After": retry_after} if retry_after is not None else {})
    return httpx.Response(status, headers=headers, content=body.model_dump_json())
