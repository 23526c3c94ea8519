"""The option `--hook NAME=COMMAND` of `fleetwright remediate`."""

from collections.abc import Sequence

from api.cli.common.errors import InputError


def given_hooks(entries: Sequence[str], *, allowed: Sequence[str]) -> dict[str, str]:
    """Return the commands by name."""
    found: dict[str, str] = {}
    for entry in entries:
        name, sign, command = entry.partition("=")
        if not sign or name not in allowed or not command.strip():
            raise InputError(f"--hook {entry}: expected NAME=COMMAND, NAME one of {', '.join(allowed)}")
        found[name] = command
    return found
