"""A secret in a file."""

from pathlib import Path

from fleet.errors import FleetwrightError
from fleetwright.token_file import read_token


class TokenFileError(FleetwrightError):
    """The file with the secret cannot be used."""


def read_token_file(path: Path) -> str:
    """The secret, without the line's end."""
    try:
        return read_token(path)
    except ValueError as error:
        raise TokenFileError(str(error)) from error
