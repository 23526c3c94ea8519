"""Turns a failure into short lines on stderr and an exit code.

0    success
1    negative result: infeasible, not found, refused, unreachable
2    wrong input: an option, a file, a name, a setting
130  interrupted (128 + SIGINT)
141  the reader of stdout closed the pipe (128 + SIGPIPE)
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fleet.errors import DocumentError, FleetwrightError, UnknownNameError

EXIT_NEGATIVE = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


class CommandError(FleetwrightError):
    """Carries its lines and its exit code."""

    def __init__(self, *lines: str, exit_code: int) -> None:
        self.lines = lines
        self.exit_code = exit_code
        super().__init__("; ".join(lines))


class InputError(CommandError):
    """Reports wrong input."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines, exit_code=EXIT_BAD_INPUT)


@contextmanager
def input_errors(*kinds: type[Exception], prefix: str = "") -> Iterator[None]:
    """Report exceptions of these kinds as wrong input."""
    try:
        yield
    except kinds as error:
        raise InputError(f"{prefix}{getattr(error, 'strerror', None) or error}") from error


def error_lines(error: FleetwrightError) -> Iterator[str]:
    """Return one line per defect of a document, and one line for any other error."""
    if isinstance(error, CommandError):
        yield from error.lines
    elif isinstance(error, DocumentError):
        yield from (f"{error.name}: {problem}" for problem in error.problems)
    else:
        yield str(error)


def exit_code_of(error: FleetwrightError) -> int:
    if isinstance(error, CommandError):
        return error.exit_code
    return EXIT_BAD_INPUT if isinstance(error, DocumentError | UnknownNameError) else EXIT_NEGATIVE
