"""Sizes and headers read from OpenAI requests; invalid requests are refused with the field."""

import json
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.router.errors import BadRequestError
from deploy.router.openai import MAX_CLASS_BYTES, ProxiedRequest, arrival_of
from power.controls import Priority

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


def request(document: Any, *, target: str = CHAT, **headers: str) -> ProxiedRequest:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return ProxiedRequest(method="POST", target=target, headers=named, body=body)


def chat(*contents: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content} for content in contents]} | more


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_the_text_of_a_chat_is_counted_in_bytes(texts: list[str]) -> None:
    expected = sum(len(text.encode(errors="surrogatepass")) for text in texts)
    assert arrival_of(request(chat(*texts))).prompt_bytes == expected
    parts = chat([{"type": "text", "text": text} for text in texts])
    assert arrival_of(request(parts)).prompt_bytes == expected


def test_tools_count_as_text_and_images_do_not() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:" + "A" * 10_000}}
    assert arrival_of(request(chat([image, {"type": "text", "text": "what?"}]))).prompt_bytes == 5
    assert arrival_of(request(chat("hi", tools=[{"type": "function", "name": "x" * 100}]))).prompt_bytes > 102
    assert arrival_of(request({"messages": [{"role": "assistant", "content": None}]})).prompt_bytes == 0


@pytest.mark.parametrize(
    ("prompt", "text_bytes", "tokens"),
    [("grüß", 6, None), (["ab", "c"], 3, None), ([1, 2, 3], 0, 3), ([[1, 2], [3]], 0, 3)],
)
def test_prompts_of_every_form_are_measured(prompt: Any, text_bytes: int, tokens: int | None) -> None:
    arrival = arrival_of(request({"prompt": prompt}, target=COMPLETION))
    assert (arrival.prompt_bytes, arrival.prompt_tokens) == (text_bytes, tokens)


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ({}, inf),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5),
        ({"max_completion_tokens": None, "max_tokens": 0}, 0),
        ({"max_tokens": 10**30}, 2.0**53),
    ],
)
def test_the_limit_of_output_tokens_is_read(more: dict[str, Any], most: float) -> None:
    assert arrival_of(request(chat("hi", **more))).max_output_tokens == most


def test_headers_set_class_and_priority() -> None:
    found = arrival_of(request(chat("hi"), x_fleetwright_class=" batch ", x_fleetwright_priority="Low"))
    assert (found.caller, found.priority) == (b"batch", Priority.LOW)
    plain = arrival_of(request(chat("hi")))
    assert (plain.caller, plain.priority) == (None, Priority.HIGH)


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/chat/completions", "/v1/chat/completions/?x=1"])
def test_paths_with_and_without_a_version_are_accepted(target: str) -> None:
    assert arrival_of(request(chat("hello"), target=target)).prompt_bytes == 5


def test_bodies_of_other_paths_are_not_parsed() -> None:
    assert arrival_of(request(b"\x00\xff", target="/v1/audio/speech")).prompt_bytes == 2
    assert arrival_of(request({"input": "text"}, target="/v1/embeddings")).prompt_bytes == len(b'{"input": "text"}')


@pytest.mark.parametrize(
    ("document", "message", "param"),
    [
        (b"{", "not JSON", None),
        (b"\xff", "not JSON", None),
        (b"[" * 100_000, "not JSON", None),
        ([1], "must be a JSON object", None),
        ({}, "at least one message", "messages"),
        ({"messages": []}, "at least one message", "messages"),
        ({"messages": ["hi"]}, "must be an object", "messages[0]"),
        (chat("hi", 5), "text or a list of parts", "messages[1].content"),
        (chat("hi", max_tokens=-1), "0 or more", "max_tokens"),
        (chat("hi", max_tokens=True), "whole number", "max_tokens"),
        (chat("hi", max_completion_tokens="5"), "whole number", "max_completion_tokens"),
    ],
)
def test_an_invalid_chat_request_is_refused_with_its_field(document: Any, message: str, param: str | None) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        arrival_of(request(document))
    assert caught.value.param == param
    error = json.loads(caught.value.body)["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize("prompt", [None, 5, [], [1, "a"], {}])
def test_a_completion_without_a_valid_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(BadRequestError) as caught:
        arrival_of(request({"prompt": prompt}, target=COMPLETION))
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ({"x_fleetwright_priority": "urgent"}, "x-fleetwright-priority"),
        ({"x_fleetwright_class": "c" * (MAX_CLASS_BYTES + 1)}, "x-fleetwright-class"),
        ({"x_fleetwright_class": ""}, "x-fleetwright-class"),
    ],
)
def test_invalid_headers_are_refused_with_their_name(headers: dict[str, str], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        arrival_of(request(chat("hi"), **headers))
    assert caught.value.param == param


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(messages=JSONS, prompt=JSONS, most=JSONS, tools=JSONS, target=st.sampled_from([CHAT, COMPLETION]))
def test_any_document_is_read_or_refused(messages: Any, prompt: Any, most: Any, tools: Any, target: str) -> None:
    document = {"messages": messages, "prompt": prompt, "max_tokens": most, "tools": tools}
    try:
        arrival = arrival_of(request(document, target=target))
    except BadRequestError:
        return
    assert arrival.prompt_bytes >= 0
    assert arrival.max_output_tokens >= 0
