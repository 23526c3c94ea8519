"""Usage and times read from a response do not depend on its chunk boundaries."""

import itertools
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.router.response_stream import TAIL_BYTES, ResponseReader, Usage

NEWLINES = st.sampled_from([b"\n\n", b"\r\n\r\n"])


def pieces(body: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return (body[a:b] for a, b in itertools.pairwise(edges))


def read(body: bytes, cuts: list[int], *, streamed: bool = True) -> ResponseReader:
    reader = ResponseReader(streamed=streamed)
    for at, piece in enumerate(pieces(body, cuts)):
        reader.observe(piece, now_s=float(at))
    return reader


def stream(tokens: list[str], *, end: bytes, usage: dict[str, int] | None = None, done: bool = True) -> bytes:
    events = [json.dumps({"choices": [{"delta": {"content": token}}]}).encode() for token in tokens]
    if usage is not None:
        events.append(json.dumps({"choices": [], "usage": usage}).encode())
    if done:
        events.append(b"[DONE]")
    return b"".join(b"data: " + event + end for event in events)


CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@given(tokens=st.lists(st.text(max_size=8), max_size=20), end=NEWLINES, cuts=CUTS, done=st.booleans())
def test_events_are_counted_for_any_chunk_boundaries(
    tokens: list[str], end: bytes, cuts: list[int], *, done: bool
) -> None:
    reader = read(stream(tokens, end=end, done=done), cuts)
    assert reader.events == len(tokens) + done
    assert reader.usage() == Usage(output_tokens=len(tokens))


@given(tokens=st.lists(st.text(max_size=8), max_size=20), end=NEWLINES, cuts=CUTS, prompt=st.integers(0, 10**6))
def test_the_token_count_of_the_engine_is_used(tokens: list[str], end: bytes, cuts: list[int], prompt: int) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": 3 * len(tokens) + 1}
    found = read(stream(tokens, end=end, usage=usage), cuts).usage()
    assert found == Usage(prompt_tokens=prompt, output_tokens=3 * len(tokens) + 1)


@given(text=st.text(), cuts=CUTS)
def test_usage_is_read_from_the_document_and_not_from_its_content(text: str, cuts: list[int]) -> None:
    content = 'so "usage": {"prompt_tokens": 9, "completion_tokens": 9}' + text
    document = {"choices": [{"message": {"content": content}}], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}
    assert read(json.dumps(document).encode(), cuts, streamed=False).usage() == Usage(prompt_tokens=4, output_tokens=2)
    del document["usage"]
    assert read(json.dumps(document).encode(), cuts, streamed=False).usage() == Usage()


@pytest.mark.parametrize(
    "usage", ["null", "{", '{"prompt_tokens": "5"}', '{"prompt_tokens": -1}', '{"prompt_tokens": true}', "[]"]
)
def test_invalid_token_counts_are_ignored(usage: str) -> None:
    assert read(b'{"usage": %s' % usage.encode(), [], streamed=False).usage() == Usage()


def test_the_usage_names_of_the_responses_protocol_are_read() -> None:
    body = b'{"usage": {"input_tokens": 5, "output_tokens": 6}}'
    assert read(body, [], streamed=False).usage() == Usage(prompt_tokens=5, output_tokens=6)


def test_only_the_tail_of_a_long_response_is_kept() -> None:
    reader = ResponseReader(streamed=False)
    for _ in range(100):
        reader.observe(b"x" * TAIL_BYTES, now_s=0.0)
    reader.observe(b'"usage": {"completion_tokens": 8}', now_s=1.0)
    assert reader.usage().output_tokens == 8
    assert len(reader._tail) == TAIL_BYTES


def test_times_are_measured_at_events_and_not_at_comments() -> None:
    reader = ResponseReader(streamed=True)
    for now_s, chunk in [(1.0, b": ping\n\n"), (2.0, b"data: 1\n\n"), (4.0, b"data: 2\n\n"), (9.0, b": ping\n\n")]:
        reader.observe(chunk, now_s=now_s)
    assert (reader.first_s, reader.last_s) == (2.0, 4.0)
    assert reader.token_s(5) == 0.5
    assert reader.token_s(1) is None


def test_compressed_responses_are_timed_and_not_parsed() -> None:
    reader = ResponseReader(streamed=True, readable=False)
    reader.observe(b"\x1f\x8b data: 5", now_s=1.0)
    assert (reader.first_s, reader.usage()) == (1.0, Usage())
