"""The part of the OpenAI protocol that emulated workers implement: completions and chat, whole or streamed, with usage.

Tokens are `t0 `, `t1 `, and so on.  Text counts four bytes per token; lists of token ids are counted.  Beside the
protocol's own fields the end of a response has `twin`: replica, clock, and the model's times, which a busy machine does
not lengthen.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from deploy.emulator.errors import InvalidRequestError

BYTES_PER_TOKEN = 4
DEFAULT_TOKENS = 16
MAX_TOKENS = 1_000_000
EVENT_STREAM = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
DONE = b"data: [DONE]\n\n"

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    chat: bool
    prompt_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool


def read_ask(path: str, body: bytes) -> Ask:
    """Parse a request; raise InvalidRequestError."""
    chat = path.endswith("/chat/completions")
    try:
        document = json.loads(body)
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidRequestError("the body must be a JSON object")
    options = document.get("stream_options")
    return Ask(
        chat=chat,
        prompt_tokens=max(1, _chat_tokens(document) if chat else _prompt_tokens(document)),
        output_tokens=_output_tokens(document),
        stream=document.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def event(ask: Ask, *, key: str, model: str, index: int, last: bool) -> bytes:
    """Return the event of one token of a stream."""
    reason = "length" if last else None
    choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
    choice |= {"delta": {"content": _word(index)}} if ask.chat else {"text": _word(index)}
    kind = "chat.completion.chunk" if ask.chat else "text_completion"
    return _event({"id": key, "object": kind, "model": model, "choices": [choice]})


def usage_event(ask: Ask, *, key: str, model: str, twin: Mapping[str, Any]) -> bytes:
    """Return the last chunk of a stream with usage."""
    kind = "chat.completion.chunk" if ask.chat else "text_completion"
    return _event({"id": key, "object": kind, "model": model, "choices": [], "usage": _usage(ask), "twin": dict(twin)})


def whole(ask: Ask, *, key: str, model: str, twin: Mapping[str, Any]) -> bytes:
    """Return a response in one piece."""
    text = "".join(map(_word, range(ask.output_tokens)))
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    choice |= {"message": {"role": "assistant", "content": text}} if ask.chat else {"text": text}
    kind = "chat.completion" if ask.chat else "text_completion"
    document = {"id": key, "object": kind, "model": model, "choices": [choice], "usage": _usage(ask)}
    return json.dumps(document | {"twin": dict(twin)}).encode()


def models(name: str) -> bytes:
    """Return the list of models, with one entry."""
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "twin"}]}).encode()


def refusal(message: str, status: HTTPStatus) -> bytes:
    """Return an error in OpenAI's form."""
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


def _chat_tokens(document: Mapping[str, Any]) -> int:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise InvalidRequestError("messages: allowed: a list of at least one message")
    return sum(_text_tokens(each["content"]) for each in messages if isinstance(each.get("content"), str))


def _prompt_tokens(document: Mapping[str, Any]) -> int:
    prompt = document.get("prompt")
    if isinstance(prompt, str):
        return _text_tokens(prompt)
    if isinstance(prompt, list) and prompt and all(type(each) is int for each in prompt):
        return len(prompt)
    raise InvalidRequestError("prompt: allowed: text, or a list of token ids")


def _text_tokens(text: str) -> int:
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _output_tokens(document: Mapping[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        value = document.get(name)
        if value is None:
            continue
        if type(value) is not int or not 1 <= value <= MAX_TOKENS:
            raise InvalidRequestError(f"{name}: allowed: a whole number from 1 to {MAX_TOKENS:,}")
        return value
    return DEFAULT_TOKENS
