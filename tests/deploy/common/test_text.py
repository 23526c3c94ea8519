"""Output of other programs as one line."""

import pytest

from deploy.common.text import MESSAGE_MAX_CHARS, first_line, joined, one_line, reason_of


def test_notes_are_joined_and_empty_ones_omitted() -> None:
    assert joined("a", None, "", "b") == "a; b"
    assert joined(None, "") is None


def test_a_message_is_one_line_of_limited_length() -> None:
    assert one_line("Traceback:\n\tline\x00 1 ") == "Traceback: line  1"
    long = one_line("x" * 600)
    assert (len(long), long[-1]) == (MESSAGE_MAX_CHARS, "…")


def test_the_first_line_skips_blank_lines() -> None:
    assert first_line("\n  \nfirst\nsecond") == "first"
    assert first_line(" \n") == "nothing"
    assert first_line("x" * 300) == "x" * 200


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("first\nsecond"), "first"),
        (TimeoutError(), "TimeoutError"),
        (ExceptionGroup("several", [ExceptionGroup("inner", [KeyError("k")]), ValueError("v")]), "'k'"),
    ],
)
def test_the_reason_of_an_error_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
