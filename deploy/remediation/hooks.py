"""The operator's commands for steps outside Ray: replace a machine, start it for a probe, return it to service.

A command gets FLEETWRIGHT_NODE and FLEETWRIGHT_CASE and runs in its own process group, which is killed after its
timeout.  It runs once per case, and again only if the controller died before it stored the result.
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

HOOKS: Final = ("replace", "probe-only", "release")
MAX_OUTPUT: Final = 300  # characters, the last ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    commands: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0

    async def run(self, hook: str, *, node: str, case_id: str) -> str:
        """Run the command and return its output, empty without a command.  Raise ActuationError if it fails."""
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
        return await self._output(hook, process)

    async def _output(self, hook: str, process: asyncio.subprocess.Process) -> str:
        try:
            async with asyncio.timeout(self.timeout_s):
                raw, _none = await process.communicate()
        except TimeoutError as error:
            raise ActuationError(f"hook {hook} did not end within {self.timeout_s:g} s and was killed") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the rest of its group, also when this task is cancelled
            await process.wait()
        output = " ".join(raw.decode(errors="replace").split())[-MAX_OUTPUT:]
        if process.returncode:
            raise ActuationError(f"hook {hook} ended with status {process.returncode}: {output}")
        return output or "done"
