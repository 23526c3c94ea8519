"""Opens the database of a command, and converts its errors."""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.server import Settings
from api.store import DatabaseUnavailableError, Migrations, StoreError, UnknownRevisionError, database_file
from fleet.documents import dotted, validation_problems
from fleet.errors import DocumentError, Problem

_SECRETS = re.compile(r"(?<=://).*@|\?.*")


def read_settings(**options: Any) -> Settings:
    """Read the settings from options, else from the environment."""
    options = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**options)
    except ValidationError as error:
        problems = [
            Problem(_option_or_variable(dotted(path), options), message) for path, message in validation_problems(error)
        ]
        raise DocumentError(name="settings", problems=problems) from None


def _option_or_variable(name: str, options: Mapping[str, Any]) -> str:
    """Name the option or variable of a setting; None for a rule over several settings."""
    if not name:
        return ""
    return f"--{name.replace('_', '-')}" if name in options else f"FLEETWRIGHT_{name.upper()}"


@contextmanager
def sole_server(settings: Settings) -> Iterator[None]:
    """Refuse a second server on one SQLite file; its workers open the file without this lock."""
    file = database_file(settings.database_url.get_secret_value())
    if file is None or not file.parent.is_dir():
        yield
        return
    lock_file = file.with_name(f"{file.name}.lock")
    try:
        held = lock_file.open("a+", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{lock_file}: {error.strerror}", exit_code=EXIT_NEGATIVE) from error
    with held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            held.seek(0)
            used = f"another server uses it (process {held.read().strip()}); allowed: one server of an SQLite file"
            raise CommandError(f"database {file}: {used}", exit_code=EXIT_NEGATIVE) from error
        held.truncate(0)
        held.write(f"{os.getpid()}\n")
        held.flush()
        yield


@contextmanager
def open_migrations(settings: Settings) -> Iterator[Migrations]:
    url = settings.database_url.get_secret_value()
    name = f"database {_SECRETS.sub('', url)}"
    try:
        yield Migrations(url)
    except DatabaseUnavailableError as error:
        raise CommandError(f"{name}: {error}", exit_code=EXIT_NEGATIVE) from error
    except UnknownRevisionError as error:
        raise InputError(f"{name}: {error}") from error
    except StoreError as error:
        raise InputError(str(error)) from error
