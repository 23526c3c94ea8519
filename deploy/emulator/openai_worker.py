"""Answers requests of the OpenAI protocol by the tokens of an emulated worker, or of several behind one address."""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Protocol

from deploy.emulator.engine import Token, TooLongError
from deploy.emulator.metric_pages import RequestRecord
from deploy.emulator.openai_protocol import (
    DONE,
    EVENT_STREAM,
    JSON,
    CompletionRequest,
    Headers,
    InvalidRequestError,
    event,
    models,
    parse_request,
    refusal,
    usage_event,
    whole,
)

COMPLETIONS = frozenset({"/v1/completions", "/v1/chat/completions"})
Part = tuple[int, Headers] | bytes


class TokenSource(Protocol):
    """Where the tokens come from: a `WorkerLoop`, or a fleet's dispatcher."""

    def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[tuple[Token, float], None]: ...

    async def complete(self, *, prompt_tokens: int, output_tokens: int) -> RequestRecord: ...


class OpenAIWorker:
    """Answers the paths of one engine; `timing` becomes the field `emulator` at the end of each response."""

    def __init__(self, source: TokenSource, *, model: str, timing: Mapping[str, Any] | None = None) -> None:
        self.timing: Mapping[str, Any] = timing or {}
        self._source = source
        self._model = model

    async def answer(self, method: str, target: str, body: bytes) -> AsyncGenerator[Part, None]:
        """Yield status and headers, then the body's parts."""
        path = target.partition("?")[0].rstrip("/")
        if method == "GET" and path == "/v1/models":
            yield HTTPStatus.OK.value, [JSON]
            yield models(self._model)
            return
        if method != "POST" or path not in COMPLETIONS:
            yield HTTPStatus.NOT_FOUND.value, [JSON]
            yield refusal(f"no such path: {method} {path}", HTTPStatus.NOT_FOUND)
            return
        try:
            request = parse_request(path, body)
            async with aclosing(self._stream(request) if request.stream else self._whole(request)) as parts:
                async for part in parts:
                    yield part
        except (TooLongError, InvalidRequestError) as error:
            yield HTTPStatus.BAD_REQUEST.value, [JSON]
            yield refusal(str(error), HTTPStatus.BAD_REQUEST)

    async def _stream(self, request: CompletionRequest) -> AsyncGenerator[Part, None]:
        key, ttft_s, taken_s = _key(), 0.0, 0.0
        tokens = self._source.tokens(prompt_tokens=request.prompt_tokens, output_tokens=request.output_tokens)
        async with aclosing(tokens):
            async for token, taken_s in tokens:
                if token.index == 0:
                    ttft_s = taken_s
                    yield HTTPStatus.OK.value, [EVENT_STREAM]
                yield event(request, key=key, model=self._model, index=token.index, last=token.last)
        if request.include_usage:
            yield usage_event(request, key=key, model=self._model, timing=self._timed(ttft_s, taken_s))
        yield DONE

    async def _whole(self, request: CompletionRequest) -> AsyncGenerator[Part, None]:
        done = await self._source.complete(prompt_tokens=request.prompt_tokens, output_tokens=request.output_tokens)
        yield HTTPStatus.OK.value, [JSON]
        yield whole(request, key=_key(), model=self._model, timing=self._timed(done.ttft_s, done.e2e_s))

    def _timed(self, ttft_s: float, e2e_s: float) -> dict[str, Any]:
        return {**self.timing, "ttft_s": round(ttft_s, 6), "e2e_s": round(e2e_s, 6)}


def _key() -> str:
    return f"emulator-{time.monotonic_ns()}"
