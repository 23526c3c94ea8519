"""Reads a token and keeps it secret.

The client reads FLEETWRIGHT_TOKEN, then the file in FLEETWRIGHT_TOKEN_FILE.  Only the `BearerToken` of a client holds
the token, and only requests contain it.
"""

import re
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path

import httpx
from pydantic import SecretStr

from api.client.errors import ClientSettingsError

TOKEN_VARIABLE = "FLEETWRIGHT_TOKEN"  # noqa: S105 - the variable's name
TOKEN_FILE_VARIABLE = "FLEETWRIGHT_TOKEN_FILE"  # noqa: S105 - the variable's name

# Checked here, because the HTTP layer would quote the whole of a bad header value in its error.
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]{1,16384}")  # tokens of an issuer or a cluster are long


class BearerToken(httpx.Auth):
    """Sends `Authorization: Bearer …` with every request; that of a file is read again when the file changes."""

    def __init__(self, token: str | Path) -> None:
        self._file = token if isinstance(token, Path) else None
        self._secret = SecretStr("")
        self._read_as: tuple[int, int] | None = None
        if isinstance(token, Path):
            self._read(token)
        else:
            self._keep(token)

    def __repr__(self) -> str:
        return "BearerToken(…)"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header (httpx calls this for each request)."""
        if self._file is not None:
            with suppress(ClientSettingsError):  # while the file is replaced, the last token stays
                self._read(self._file)
        request.headers["Authorization"] = f"Bearer {self._secret.get_secret_value()}"
        yield request

    def _read(self, file: Path) -> None:
        try:
            found = file.stat()
        except OSError as error:
            raise ClientSettingsError(f"token file {file}: {error.strerror or 'cannot be read'}") from error
        if (now := (found.st_mtime_ns, found.st_ino)) != self._read_as:
            self._keep(token_from_file(file))
            self._read_as = now

    def _keep(self, token: str) -> None:
        if not _VISIBLE_ASCII.fullmatch(token):
            raise ClientSettingsError("token: must be 1 to 16,384 visible ASCII characters without spaces")
        self._secret = SecretStr(token)


def token_from_file(path: Path) -> str:
    """Read the token in a file, such as a mounted secret, without surrounding white space."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ClientSettingsError(f"token file {path}: {error.strerror or 'cannot be read'}") from error
    except UnicodeDecodeError:
        raise ClientSettingsError(f"token file {path}: must hold ASCII text only") from None
    if not token:
        raise ClientSettingsError(f"token file {path}: is empty; it must hold one token")
    return token


def token_from_environment(environment: Mapping[str, str]) -> str | None:
    """Return the token of the environment; None where none is set."""
    if token := environment.get(TOKEN_VARIABLE):
        return token
    if path := environment.get(TOKEN_FILE_VARIABLE):
        return token_from_file(Path(path))
    return None
