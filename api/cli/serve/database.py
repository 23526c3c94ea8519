"""Opens the database of a command, and converts its errors."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.server import Settings
from api.store import DatabaseUnavailableError, Migrations, StoreError, UnknownRevisionError
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
