"""The operator's commands for steps outside the cluster: replace a machine, start it for a probe, return it to service.

A command gets FLEETWRIGHT_NODE and FLEETWRIGHT_CASE and runs in its own process group, which is killed after its
timeout.  It runs once per case, and again only if the controller died before it stored the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from deploy.common.commands import run_command
from deploy.common.errors import ActuationError

HOOKS: Final = ("replace", "probe-only", "release")
NODE_HOOKS: Final = ("replace", "probe", "release")  # on Kubernetes nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    commands: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0

    async def run(self, hook: str, *, node: str, case_id: str) -> str:
        """Run the command and return its output, empty without a command.  Raise ActuationError if it fails."""
        command = self.commands.get(hook)
        if command is None:
            return ""
        result = await run_command(
            command,
            name=f"hook {hook}",
            timeout_s=self.timeout_s,
            environment={"FLEETWRIGHT_NODE": node, "FLEETWRIGHT_CASE": case_id},
            errors_in_output=True,
        )
        if result.status:
            raise ActuationError(f"hook {hook} ended with status {result.status}: {result.message}")
        return result.message or "done"
