"""Prints results to stdout, and everything else to stderr."""

import contextlib
import io
import os
import sys

import typer

from api.cli.common.errors import EXIT_NEGATIVE, EXIT_PIPE_CLOSED, CommandError


def show_unprintable_as_escapes() -> None:
    """Print escapes for characters that the terminal lacks, instead of failing; stderr does so by itself."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_line(line: str) -> None:
    write(f"{line}\n")


def note(line: str) -> None:
    typer.echo(line, err=True)


def write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # `fleetwright … | head`
        _discard_stdout()
        raise typer.Exit(EXIT_PIPE_CLOSED) from None
    except OSError as error:
        _discard_stdout()
        raise CommandError(f"stdout: {error.strerror}", exit_code=EXIT_NEGATIVE) from error


def _discard_stdout() -> None:
    """Discard the buffered output; else Python reports it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
