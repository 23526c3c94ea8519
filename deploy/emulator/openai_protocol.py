"""The part of the OpenAI protocol that emulated workers implement: completions and chat, whole or streamed, with usage.

Tokens are `t0 `, `t1 `, and so on.  Text counts four bytes per token; lists of token ids are counted.  Beside the
protocol's own fields the end of a response has `emulator`: replica, clock, and the model's times, which a busy machine
does not lengthen.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from typing import Any

from deploy.router.errors import BadRequestError
from deploy.router.openai import ProxiedRequest, arrival_of
from fleet.errors import FleetwrightError

BYTES_PER_TOKEN = 4
DEFAULT_TOKENS = 16
MAX_TOKENS = 1_000_000
EVENT_STREAM = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
DONE = b"data: [DONE]\n\n"
METER_PATH = "/v1/emulator"  # returns the power of each replica

Headers = list[tuple[bytes, bytes]]


class InvalidRequestError(FleetwrightError):
    """The request is invalid; the message names the field and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    chat: bool
    prompt_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool


def parse_request(path: str, body: bytes) -> CompletionRequest:
    """Parse a request, with the sizes that the router reads.  Raise InvalidRequestError."""
    try:
        arrival = arrival_of(ProxiedRequest(method="POST", target=path, headers=(), body=body))
    except BadRequestError as error:
        raise InvalidRequestError(f"{error.param}: {error}" if error.param else str(error)) from error
    if arrival.max_output_tokens != inf and not 1 <= arrival.max_output_tokens <= MAX_TOKENS:
        raise InvalidRequestError(f"max_tokens: allowed: a whole number from 1 to {MAX_TOKENS:,}")
    counted = arrival.prompt_tokens
    document = json.loads(body)
    options = document.get("stream_options")
    return CompletionRequest(
        chat=path.endswith("/chat/completions"),
        prompt_tokens=max(1, -(-arrival.prompt_bytes // BYTES_PER_TOKEN) if counted is None else counted),
        output_tokens=DEFAULT_TOKENS if arrival.max_output_tokens == inf else int(arrival.max_output_tokens),
        stream=document.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def event(request: CompletionRequest, *, key: str, model: str, index: int, last: bool) -> bytes:
    reason = "length" if last else None
    choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
    choice |= {"delta": {"content": _token_text(index)}} if request.chat else {"text": _token_text(index)}
    kind = "chat.completion.chunk" if request.chat else "text_completion"
    return _event({"id": key, "object": kind, "model": model, "choices": [choice]})


def usage_event(request: CompletionRequest, *, key: str, model: str, timing: Mapping[str, Any]) -> bytes:
    kind = "chat.completion.chunk" if request.chat else "text_completion"
    return _event(
        {"id": key, "object": kind, "model": model, "choices": [], "usage": _usage(request), "emulator": dict(timing)}
    )


def whole(request: CompletionRequest, *, key: str, model: str, timing: Mapping[str, Any]) -> bytes:
    text = "".join(map(_token_text, range(request.output_tokens)))
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    choice |= {"message": {"role": "assistant", "content": text}} if request.chat else {"text": text}
    kind = "chat.completion" if request.chat else "text_completion"
    document = {"id": key, "object": kind, "model": model, "choices": [choice], "usage": _usage(request)}
    return json.dumps(document | {"emulator": dict(timing)}).encode()


def models(name: str) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "emulator"}]}).encode()


def refusal(message: str, status: HTTPStatus) -> bytes:
    kind = "not_found_error" if status is HTTPStatus.NOT_FOUND else "invalid_request_error"
    return json.dumps({"error": {"message": message, "type": kind, "code": status.value}}).encode()


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _usage(request: CompletionRequest) -> dict[str, int]:
    return {
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": request.output_tokens,
        "total_tokens": request.prompt_tokens + request.output_tokens,
    }


def _token_text(index: int) -> str:
    return f"t{index} "
