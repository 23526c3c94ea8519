"""The part of the OpenAI protocol that emulated workers implement: completions and chat, whole or streamed, with usage.

Tokens are `t0 `, `t1 `, and so on.  Text counts four bytes per token; lists of token ids are counted.  Beside the
protocol's own fields the end of a response has `twin`: replica, clock, and the model's times, which a busy machine does
not lengthen.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from typing import Any

from deploy.router.errors import BadRequestError
from deploy.router.openai import Question, arrival_of
from fleet.errors import FleetwrightError

BYTES_PER_TOKEN = 4
DEFAULT_TOKENS = 16
MAX_TOKENS = 1_000_000
EVENT_STREAM = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
DONE = b"data: [DONE]\n\n"
METER_PATH = "/v1/twin"  # returns the power of each replica

Headers = list[tuple[bytes, bytes]]


class InvalidRequestError(FleetwrightError):
    """The request is invalid; the message names the field and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    chat: bool
    prompt_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool


def read_ask(path: str, body: bytes) -> Ask:
    """Parse a request, with the sizes that the router reads.  Raise InvalidRequestError."""
    try:
        arrival = arrival_of(Question(method="POST", target=path, headers=(), body=body))
    except BadRequestError as error:
        raise InvalidRequestError(f"{error.param}: {error}" if error.param else str(error)) from error
    if arrival.max_output_tokens != inf and not 1 <= arrival.max_output_tokens <= MAX_TOKENS:
        raise InvalidRequestError(f"max_tokens: allowed: a whole number from 1 to {MAX_TOKENS:,}")
    counted = arrival.prompt_tokens
    document = json.loads(body)
    options = document.get("stream_options")
    return Ask(
        chat=path.endswith("/chat/completions"),
        prompt_tokens=max(1, -(-arrival.prompt_bytes // BYTES_PER_TOKEN) if counted is None else counted),
        output_tokens=DEFAULT_TOKENS if arrival.max_output_tokens == inf else int(arrival.max_output_tokens),
        stream=document.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def event(ask: Ask, *, key: str, model: str, index: int, last: bool) -> bytes:
    reason = "length" if last else None
    choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
    choice |= {"delta": {"content": _word(index)}} if ask.chat else {"text": _word(index)}
    kind = "chat.completion.chunk" if ask.chat else "text_completion"
    return _event({"id": key, "object": kind, "model": model, "choices": [choice]})


def usage_event(ask: Ask, *, key: str, model: str, twin: Mapping[str, Any]) -> bytes:
    kind = "chat.completion.chunk" if ask.chat else "text_completion"
    return _event({"id": key, "object": kind, "model": model, "choices": [], "usage": _usage(ask), "twin": dict(twin)})


def whole(ask: Ask, *, key: str, model: str, twin: Mapping[str, Any]) -> bytes:
    text = "".join(map(_word, range(ask.output_tokens)))
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    choice |= {"message": {"role": "assistant", "content": text}} if ask.chat else {"text": text}
    kind = "chat.completion" if ask.chat else "text_completion"
    document = {"id": key, "object": kind, "model": model, "choices": [choice], "usage": _usage(ask)}
    return json.dumps(document | {"twin": dict(twin)}).encode()


def models(name: str) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "twin"}]}).encode()


def refusal(message: str, status: HTTPStatus) -> bytes:
    kind = "not_found_error" if status is HTTPStatus.NOT_FOUND else "invalid_request_error"
    return json.dumps({"error": {"message": message, "type": kind, "code": status.value}}).encode()


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _usage(ask: Ask) -> dict[str, int]:
    return {
        "prompt_tokens": ask.prompt_tokens,
        "completion_tokens": ask.output_tokens,
        "total_tokens": ask.prompt_tokens + ask.output_tokens,
    }


def _word(index: int) -> str:
    return f"t{index} "
