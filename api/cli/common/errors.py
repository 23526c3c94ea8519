"""How a command ends when it cannot do what was asked: short lines on stderr and an exit code.

0    done
1    the answer is no: infeasible, not found, refused, out of reach
2    the input is wrong: an option, a file, a name, a setting
130  interrupted (128 + SIGINT)
141  whoever read the output stopped reading (128 + SIGPIPE)
"""

from collections.abc import Iterator

from fleet.errors import DocumentError, FleetwrightError, UnknownNameError

EXIT_NEGATIVE = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


class CommandError(FleetwrightError):
    """A failure in the words in which it is to be told."""

    def __init__(self, *lines: str, exit_code: int) -> None:
        self.lines = lines
        self.exit_code = exit_code
        super().__init__("; ".join(lines))


def error_lines(error: FleetwrightError) -> Iterator[str]:
    """One line per defect of a document, one for anything else."""
    if isinstance(error, CommandError):
        yield from error.lines
    elif isinstance(error, DocumentError):
        yield from (f"{error.name}: {problem}" for problem in error.problems)
    else:
        yield str(error)


def exit_code_of(error: FleetwrightError) -> int:
    """Whether what was given is wrong, or the world said no."""
    if isinstance(error, CommandError):
        return error.exit_code
    return EXIT_BAD_INPUT if isinstance(error, DocumentError | UnknownNameError) else EXIT_NEGATIVE
