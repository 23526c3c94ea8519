"""Runs a command of the operator: no shell, a process group of its own that ends with the command, and a timeout."""

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from deploy.common.errors import ActuationError

MAX_OUTPUT: Final = 300  # characters of a message, the last ones


@dataclass(frozen=True, slots=True)
class CommandResult:
    status: int
    output: bytes
    errors: bytes  # empty where they are part of the output

    @property
    def message(self) -> str:
        """Return the end of what the command printed, as one line."""
        raw = self.errors.strip() or self.output
        return " ".join(raw.decode(errors="replace").split())[-MAX_OUTPUT:]


async def run_command(
    command: str,
    *arguments: str,
    name: str,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    errors_in_output: bool = False,
) -> CommandResult:
    """Run the command with these arguments.  Raise ActuationError if it cannot start or does not end in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            *_words(command),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if errors_in_output else asyncio.subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ActuationError(f"{name} cannot be started: {error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise ActuationError(f"{name} did not end within {timeout_s:g} s and was killed") from error
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the rest of its group, also when this task is cancelled
        await process.wait()
    return CommandResult(process.returncode or 0, output, errors or b"")


def _words(command: str) -> Sequence[str]:
    words = shlex.split(command)
    if not words:
        raise ValueError("the command is empty")
    return words
