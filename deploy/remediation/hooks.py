"""The operator's own commands, for what is done outside Ray: a machine to replace, to start again, to give back.

A command sees FLEETWRIGHT_NODE and FLEETWRIGHT_CASE and runs in a process group of its own; when its time is up the
whole group is killed.  It is run once per case, and again when the healer was ended before it could write that down.
"""

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from deploy.common.errors import ActuationError

HOOKS: Final = ("replace", "probation", "release")
MAX_SAID: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Commands by name."""

    commands: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0

    async def call(self, hook: str, *, node: str, case_id: str) -> str:
        """What came of it; empty when there is no such command.  ActuationError when it fails or takes too long."""
        command = self.commands.get(hook)
        if command is None:
            return ""
        environment = {**os.environ, "FLEETWRIGHT_NODE": node, "FLEETWRIGHT_CASE": case_id}
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ActuationError(f"hook {hook} cannot be started: {error}") from error
        return await self._ended(hook, process)

    async def _ended(self, hook: str, process: asyncio.subprocess.Process) -> str:
        try:
            async with asyncio.timeout(self.timeout_s):
                said, _none = await process.communicate()
        except TimeoutError as error:
            raise ActuationError(f"hook {hook} did not end within {self.timeout_s:g} s and was killed") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever of its group is left, also when we are cancelled
            await process.wait()
        words = " ".join(said.decode(errors="replace").split())[-MAX_SAID:]
        if process.returncode:
            raise ActuationError(f"hook {hook} ended with status {process.returncode}: {words}")
        return words or "done"
