"""The OpenAI protocol of the emulator."""

import json
from typing import Any

import pytest

from deploy.emulator.openai_protocol import (
    CompletionRequest,
    InvalidRequestError,
    event,
    models,
    parse_request,
    usage_event,
    whole,
)

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "twelve bytes"}]}


def request(path: str, **body: Any) -> CompletionRequest:
    return parse_request(path, json.dumps(body).encode())


def test_request_sizes_match_the_router() -> None:
    assert request(CHAT, **HELLO, max_tokens=7).prompt_tokens == 3
    assert request(CHAT, **HELLO, max_completion_tokens=9, max_tokens=7).output_tokens == 9
    assert request(COMPLETIONS, prompt=[1, 2, 3, 4, 5]).prompt_tokens == 5
    assert request(COMPLETIONS, prompt="").prompt_tokens == 1
    assert request(COMPLETIONS, prompt="x").output_tokens == 16


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, "{", "JSON"),
        (CHAT, "[]", "JSON object"),
        (CHAT, '{"messages": []}', "messages"),
        (CHAT, '{"messages": ["hi"]}', "messages"),
        (COMPLETIONS, "{}", "prompt"),
        (COMPLETIONS, '{"prompt": [true]}', "prompt"),
        (COMPLETIONS, '{"prompt": "x", "max_tokens": 0}', "max_tokens"),
        (COMPLETIONS, '{"prompt": "x", "max_tokens": 1.5}', "max_tokens"),
    ],
)
def test_an_invalid_request_is_refused_with_the_field(path: str, body: str, field: str) -> None:
    with pytest.raises(InvalidRequestError, match=field):
        parse_request(path, body.encode())


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_stream_has_the_same_content_as_the_whole_response(path: str) -> None:
    parsed = request(
        path, **HELLO, prompt="twelve bytes", max_tokens=3, stream=True, stream_options={"include_usage": True}
    )
    assert (parsed.stream, parsed.include_usage) == (True, True)
    events = [event(parsed, key="k", model="m", index=index, last=index == 2) for index in range(3)]
    choices = [json.loads(part.removeprefix(b"data: "))["choices"][0] for part in events]
    document = json.loads(whole(parsed, key="k", model="m", timing={"gpu": "L4"}))
    (choice,) = document["choices"]
    if path == CHAT:
        assert "".join(each["delta"]["content"] for each in choices) == choice["message"]["content"] == "t0 t1 t2 "
    else:
        assert "".join(each["text"] for each in choices) == choice["text"] == "t0 t1 t2 "
    assert [each["finish_reason"] for each in choices] == [None, None, "length"]
    last = json.loads(usage_event(parsed, key="k", model="m", timing={"gpu": "L4"}).removeprefix(b"data: "))
    assert last["usage"] == document["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert last["emulator"] == document["emulator"] == {"gpu": "L4"}


def test_the_model_is_listed() -> None:
    assert [each["id"] for each in json.loads(models("Llama-3.1-8B"))["data"]] == ["Llama-3.1-8B"]
