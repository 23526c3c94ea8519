"""Lines are split the same for any chunks of bytes, and no line can fill memory."""

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from faults.readers.lines import TOO_LONG, Splitter, split_lines
from faults.readers.parse_errors import ParseErrors

KILOBYTE = 1024


def test_an_incomplete_line_waits_for_the_rest() -> None:
    splitter = Splitter(source="x", tally=ParseErrors())

    assert list(splitter.feed(b"one\ntw")) == [b"one"]
    assert list(splitter.feed(b"o\n")) == [b"two"]
    assert list(splitter.end()) == []


def test_an_unterminated_last_line_is_returned_at_the_end_of_the_stream() -> None:
    assert list(split_lines([b"one\ntwo"], source="x", tally=ParseErrors())) == [b"one", b"two"]


def test_empty_lines_are_skipped() -> None:
    assert list(split_lines([b"\n \n\r\none\r\n\n"], source="x", tally=ParseErrors())) == [b"one\r"]


def test_a_line_past_the_limit_is_counted_once_and_the_next_is_read() -> None:
    tally = ParseErrors()
    chunks = [b"a" * KILOBYTE] * 10 + [b"\nshort\n"]

    assert list(split_lines(chunks, source="x", tally=tally, max_bytes=4 * KILOBYTE)) == [b"short"]
    assert tally.counts() == {f"x: {TOO_LONG}": 1}


def test_an_endless_line_uses_bounded_memory() -> None:
    def endless() -> Iterator[bytes]:
        chunk = b"[" * (1 << 20)
        for _ in range(128):
            yield chunk
        yield b"\nok\n"

    tracemalloc.start()
    try:
        found = list(split_lines(endless(), source="x", tally=ParseErrors(), max_bytes=1 << 20))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found == [b"ok"]
    assert peak_bytes < 16 << 20


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10), st.integers(1, 40))
def test_chunks_may_be_cut_anywhere(data: bytes, cuts: list[int], max_bytes: int) -> None:
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:end] for start, end in pairwise(bounds)]
    whole, cut = ParseErrors(), ParseErrors()

    in_one = list(split_lines([data], source="x", tally=whole, max_bytes=max_bytes))

    assert list(split_lines(chunks, source="x", tally=cut, max_bytes=max_bytes)) == in_one
    assert cut.counts() == whole.counts()
    lines = [line for line in data.split(b"\n") if line and not line.isspace()]
    assert in_one == [line for line in lines if len(line) <= max_bytes]
