"""A token in a file."""

from pathlib import Path

from fleet.errors import FleetwrightError
from fleetwright.token_file import read_token


class TokenFileError(FleetwrightError):
    """The token file cannot be used."""


def read_token_file(path: Path) -> str:
    """Return the token without the line end."""
    try:
        return read_token(path)
    except ValueError as error:
        raise TokenFileError(str(error)) from error
