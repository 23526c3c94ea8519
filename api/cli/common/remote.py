"""Opens a client for one command, and converts its errors to lines and exit codes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import stamina

from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.client import (
    ApiError,
    Client,
    ClientSettingsError,
    ConnectionFailedError,
    InvalidRequestError,
    PreconditionFailedError,
    UnauthorizedError,
    Versioned,
    token_from_environment,
)
from api.client.transport import DEFAULT_URL

StoredT = TypeVar("StoredT")


@contextmanager
def connect(url: str | None, token_file: Path | None, *, project: str | None = None) -> Iterator[Client]:
    service = url or DEFAULT_URL
    stamina.instrumentation.set_on_retry_hooks([])  # no log line per retry: the command reports the final result
    with client_errors(service), Client(service, token=read_token(token_file), project=project) as client:
        yield client


@contextmanager
def client_errors(service: str) -> Iterator[None]:
    try:
        yield
    except ClientSettingsError as error:
        raise InputError(str(error)) from error
    except InvalidRequestError as error:
        raise InputError(*_lines(error, service)) from error
    except ApiError as error:
        raise CommandError(*_lines(error, service), exit_code=EXIT_NEGATIVE) from error


def put_document(
    *,
    create: Callable[[], Versioned[StoredT]],
    replace: Callable[[str], Versioned[StoredT]],
    current: Callable[[], str],
    etag: str | None = None,
) -> Versioned[StoredT]:
    """Create a document, or replace the version of `etag`, or else the current version."""
    if etag is not None:
        return replace(etag)
    try:
        return create()
    except PreconditionFailedError:
        return replace(current())


def read_token(token_file: Path | None) -> str | Path | None:
    """Return the file of the option, which the client reads again when it changes, else the environment's token."""
    return token_file if token_file is not None else token_from_environment(os.environ)


def _lines(error: ApiError, service: str) -> Iterator[str]:
    """Return one line per defect that the service reports, and one line for any other error."""
    match error:
        case InvalidRequestError() if error.problem.errors:
            yield from (f"{each.path}: {each.message}" if each.path else each.message for each in error.problem.errors)
        case ConnectionFailedError():
            yield f"no response from {service}: {error}"
        case UnauthorizedError():
            yield f"{error}; name a token with --token-file, FLEETWRIGHT_TOKEN or FLEETWRIGHT_TOKEN_FILE"
        case _:
            yield str(error)
