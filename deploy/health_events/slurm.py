"""Slurm by `scontrol`: drains nodes, returns them, and reads the states of all nodes.

The reason of a drain shows its owner.  The outlet drains only a node that takes work, and returns only a node whose
reason begins with `fleetwright:`.  It reads the node before and after each change, so that a repeated event changes
nothing.  It returns a node by `undrain`, which keeps other causes, such as DOWN.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, Field, ValidationError, field_validator

from api.schemas.health_events import HealthEvent, HealthState, OutletName
from deploy.common.commands import run_command
from deploy.common.errors import ActuationError, UnreachableError
from deploy.health_events.outlet import NodeCondition, NotOwnedError, ObservedNode

OWN_REASON: Final = "fleetwright:"
MAX_REASON: Final = 200
DRAINED: Final = frozenset(("DRAIN", "DRAINED", "DRAINING"))
FAULTS: Final = frozenset(("DOWN", "ERROR", "FAIL", "FAILING", "NOT_RESPONDING", "INVALID_REG"))
TAKEN_OUT: Final = DRAINED | FAULTS | {"MAINTENANCE", "REBOOT_ISSUED", "BLOCKED", "POWER_DRAIN"}
UNAVAILABLE: Final = TAKEN_OUT | {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "FUTURE", "UNKNOWN", "INVALID"}
# `ALL` and the brackets of a host list would name many nodes.
_NODE: Final = re.compile(r"(?!all$)[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.IGNORECASE)
# A command such as `kubectl exec ... -- scontrol` can pass its arguments on; none may have a meaning to a shell.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9 .,:_-]")

_NO_CONTROLLER: Final = re.compile(r"contact|connect|timed out|communicat", re.IGNORECASE)


class SlurmNode(BaseModel):
    """A node as `scontrol show node --json` prints it; older releases print the state as one word and flags."""

    name: str
    state: frozenset[str]
    state_flags: frozenset[str] = frozenset()
    reason: str = ""
    reason_set_by_user: str = ""
    reason_changed_at: Any = None  # a number, or an object with a number, by release
    partitions: tuple[str, ...] = ()

    @field_validator("state", "state_flags", mode="before")
    @classmethod
    def _as_set(cls, value: Any) -> Any:
        words = re.split(r"[+,]", value) if isinstance(value, str) else value
        return frozenset(str(word).rstrip("*~#!%$@^-").upper() for word in words or ())

    @property
    def states(self) -> frozenset[str]:
        return self.state | self.state_flags

    @property
    def is_ours(self) -> bool:
        """Return whether Fleetwright has drained it, and it is not out for another cause."""
        return bool(self.states & DRAINED) and self.reason.startswith(OWN_REASON)

    @property
    def owner(self) -> str | None:
        if self.is_ours or not self.states & TAKEN_OUT:
            return None
        by = f" by {self.reason_set_by_user}" if self.reason_set_by_user else ""
        return f"Slurm ({'+'.join(sorted(self.states))}{by}): {self.reason or 'no reason'}"


class _Nodes(BaseModel):
    nodes: list[SlurmNode] = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scontrol:
    command: str = "scontrol"
    timeout_s: float = 20.0

    async def nodes(self) -> dict[str, SlurmNode]:
        return {each.name: each for each in await self._shown("nodes")}

    async def node(self, name: str) -> SlurmNode | None:
        return next((each for each in await self._shown("node", checked(name)) if each.name == name), None)

    async def update(self, name: str, **fields: str) -> None:
        words = [f"nodename={checked(name)}", *(f"{field}={value}" for field, value in fields.items())]
        await self._run("update", *words)

    async def _shown(self, *words: str) -> list[SlurmNode]:
        raw = await self._run("show", *words, "--json")
        try:
            return _Nodes.model_validate_json(raw).nodes
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "its output"
            raise ActuationError(f"{self.command} show {words[0]} --json: {place}: {first['msg']}") from error

    async def _run(self, *words: str) -> bytes:
        result = await run_command(self.command, *words, name=self.command, timeout_s=self.timeout_s)
        if result.status:
            text = f"{self.command} {words[0]} ended with status {result.status}: {result.message}"
            # Else the command concerns one node, such as an unknown one, and the others do not wait for it.
            raise (UnreachableError if _NO_CONTROLLER.search(result.message) else ActuationError)(text)
        return result.output


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOutlet:
    scontrol: Scontrol
    name: OutletName = field(default=OutletName.SLURM, init=False)
    with_diagnoses: bool = field(default=False, init=False)
    with_history: bool = field(default=False, init=False)

    def takes(self, event: HealthEvent) -> bool:
        return event.node is not None

    def describe(self, event: HealthEvent) -> str:
        if event.state is HealthState.OUT_OF_SERVICE:
            return f"scontrol update nodename={event.node} state=drain reason={reason_of(event)!r}"
        return f"scontrol update nodename={event.node} state=undrain, if its reason begins with {OWN_REASON}"

    async def send(self, event: HealthEvent) -> str:
        name = checked(event.node or "")
        node = await self.scontrol.node(name)
        if event.state is HealthState.OUT_OF_SERVICE:
            return await self._drain(name, node, event)
        if node is None:
            return "Slurm has no such node"
        return await self._undrain(node)

    async def close(self) -> None:
        """Nothing is open between two commands."""

    async def _drain(self, name: str, node: SlurmNode | None, event: HealthEvent) -> str:
        if node is None:
            raise ActuationError(f"Slurm has no node {name}")
        if node.is_ours:
            return "was drained before"
        if node.owner is not None:
            raise NotOwnedError(node.owner)
        await self.scontrol.update(name, state="drain", reason=reason_of(event))
        after = await self.scontrol.node(name)
        if after is None or not after.is_ours:
            raise UnreachableError(f"Slurm does not show node {name} as drained yet")
        return f"drained: {after.reason}"

    async def _undrain(self, node: SlurmNode) -> str:
        if not node.states & DRAINED:
            return "is not drained"
        if not node.is_ours:
            return f"left as it is: {node.owner}"
        await self.scontrol.update(node.name, state="undrain")
        after = await self.scontrol.node(node.name)
        if after is not None and after.is_ours:
            raise UnreachableError(f"Slurm still shows node {node.name} as drained")
        return "returned to service"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNodes:
    """Observes the nodes.  A pool is a node's first partition."""

    scontrol: Scontrol
    name: str = field(default="slurm", init=False)

    async def observe(self) -> Mapping[str, ObservedNode]:
        return {name: observed(node) for name, node in (await self.scontrol.nodes()).items()}


def observed(node: SlurmNode) -> ObservedNode:
    changed = node.reason_changed_at
    since = changed.get("number", "") if isinstance(changed, dict) else changed or ""
    return ObservedNode(
        name=node.name,
        pool=node.partitions[0] if node.partitions else "default",
        available=not node.states & UNAVAILABLE,
        idle="IDLE" in node.states,
        owner=node.owner,
        conditions=tuple(
            NodeCondition(source="slurm", kind=state, since=str(since), message=node.reason)
            for state in sorted(node.states & FAULTS)
        ),
    )


def checked(name: str) -> str:
    if not _NODE.fullmatch(name):
        raise ActuationError(f"{name!r} is not the name of one Slurm node")
    return name


def reason_of(event: HealthEvent) -> str:
    found = event.diagnosis
    cause = f"{found.fault.value} in job {found.job}" if found is not None else "cordoned by an operator"
    suffix = f", event {event.id}"
    return _UNSAFE.sub("_", f"{OWN_REASON} {cause}"[: MAX_REASON - len(suffix)] + suffix)
