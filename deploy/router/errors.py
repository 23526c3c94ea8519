"""Error responses, in the form that OpenAI's clients read.

RefusalError
├── BadRequestError        400: cannot be read
├── TooLargeError          413: the body is over the limit
├── BusyError              429: the queue is full, or patience ended
├── NoReplicasError        503: no replica serves now
└── UpstreamError          502: the deployment failed the request
"""

import json
from typing import ClassVar

from deploy.common.errors import ActuationError


class RefusalError(ActuationError):
    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    outcome: ClassVar[str] = "refused"  # label of metrics

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> bytes:
        body = {"message": str(self), "type": self.kind, "param": self.param, "code": None}
        return json.dumps({"error": body}).encode()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        found = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self.body))]
        if self.retry_after_s is not None:
            found.append((b"retry-after", b"%d" % self.retry_after_s))
        return found


class BadRequestError(RefusalError):
    status, kind, outcome = 400, "invalid_request_error", "unreadable"


class TooLargeError(RefusalError):
    status, kind, outcome = 413, "invalid_request_error", "too_large"


class BusyError(RefusalError):
    status, kind, outcome = 429, "rate_limit_error", "busy"


class NoReplicasError(RefusalError):
    status, kind, outcome = 503, "server_error", "no_replicas"


class UpstreamError(RefusalError):
    status, kind, outcome = 502, "server_error", "failed"
