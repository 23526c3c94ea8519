"""The fields of an OpenAI request that the router needs.  Bodies are forwarded unchanged.

Text is measured in bytes, and lists of token ids are counted.  The engine validates everything that the router does not
need; a field that the router needs and cannot read returns 400.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from deploy.router.errors import BadRequestError
from deploy.router.scheduler import Arrival
from power.controls import Priority

CLASS_HEADER = b"x-fleetwright-class"
PRIORITY_HEADER = b"x-fleetwright-priority"
MAX_CLASS_BYTES = 64
PRIORITIES = {b"high": Priority.HIGH, b"low": Priority.LOW}

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedRequest:
    method: str
    target: str  # path and query, unchanged
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompt:
    text_bytes: int
    tokens: int | None = None


def arrival_of(request: ProxiedRequest) -> Arrival:
    """Return size and class of a request.  Raise BadRequestError.  On an unknown path the size is that of the body."""
    caller, priority = _caller(request.headers), _priority(request.headers)
    read = _READERS.get(request.target.partition("?")[0].rstrip("/").removeprefix("/v1"))
    if read is None or request.method != "POST":
        return Arrival(prompt_bytes=len(request.body), priority=priority, caller=caller)
    document = _object(request.body)
    prompt = read(document)
    return Arrival(
        prompt_bytes=prompt.text_bytes,
        prompt_tokens=prompt.tokens,
        max_output_tokens=_max_output_tokens(document),
        priority=priority,
        caller=caller,
    )


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadRequestError("the body must be a JSON object")
    return document


def _chat(document: Mapping[str, Any]) -> _Prompt:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("must be a list of at least one message", param="messages")
    text_bytes = sum(_message_bytes(message, at) for at, message in enumerate(messages))
    if tools := document.get("tools"):
        text_bytes += len(json.dumps(tools, ensure_ascii=False).encode(errors="replace"))
    return _Prompt(text_bytes=text_bytes)


def _message_bytes(message: Any, at: int) -> int:
    if not isinstance(message, dict):
        raise BadRequestError("must be an object", param=f"messages[{at}]")
    content = message.get("content")
    if content is None:
        return 0  # of an assistant that called a tool
    if isinstance(content, str):
        return _size(content)
    if not isinstance(content, list):
        raise BadRequestError("must be text or a list of parts", param=f"messages[{at}].content")
    # Parts that are not text (images, sound) are not counted: each engine converts them to tokens differently.
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return sum(_size(text) for text in texts if isinstance(text, str))


def _completion(document: Mapping[str, Any]) -> _Prompt:
    prompt = document.get("prompt")
    if isinstance(prompt, str):
        return _Prompt(text_bytes=_size(prompt))
    if isinstance(prompt, list) and prompt:
        if all(type(each) is int for each in prompt):
            return _Prompt(text_bytes=0, tokens=len(prompt))
        if all(isinstance(each, str) for each in prompt):
            return _Prompt(text_bytes=sum(map(_size, prompt)))
        if all(isinstance(each, list) for each in prompt):
            return _Prompt(text_bytes=0, tokens=sum(map(len, prompt)))
    raise BadRequestError("must be text, token ids, or a list of one of them", param="prompt")


def _size(text: str) -> int:
    # `surrogatepass`: JSON may contain half a surrogate pair, which the engine validates.
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _max_output_tokens(document: Mapping[str, Any]) -> float:
    for name in ("max_completion_tokens", "max_tokens"):
        value = document.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 0:
            raise BadRequestError("must be a whole number, 0 or more", param=name)
        return float(min(value, 2**53))
    return inf


def _caller(headers: Headers) -> bytes | None:
    found = _header(headers, CLASS_HEADER)
    if found is not None and not 0 < len(found) <= MAX_CLASS_BYTES:
        raise BadRequestError(f"must have 1 to {MAX_CLASS_BYTES} bytes", param=CLASS_HEADER.decode())
    return found


def _priority(headers: Headers) -> Priority:
    found = _header(headers, PRIORITY_HEADER)
    if found is None:
        return Priority.HIGH
    if (priority := PRIORITIES.get(found.lower())) is None:
        raise BadRequestError("must be high or low", param=PRIORITY_HEADER.decode())
    return priority


def _header(headers: Headers, name: bytes) -> bytes | None:
    return next((value.strip() for key, value in headers if key == name), None)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], _Prompt]] = {
    "/chat/completions": _chat,
    "/completions": _completion,
}
