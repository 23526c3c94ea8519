"""The agent of one node: it executes the guard's commands, and falls to safe clocks when the guard's lease expires.

The agent has no policy.  `tick` checks the lease several times a second, so that a dead guard leaves its nodes slow
within its lease.  The guard reads back and repeats what the driver lost.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

import structlog

from deploy.node_agent.cap_lease import CapLease
from deploy.node_agent.schemas import Beat, BrakeCommand, ClocksCommand, NodeTelemetry, PhaseName
from power.controls import NodeClocks, Phase

log = structlog.get_logger()

TICK_S = 0.25


class DeviceState(NamedTuple):
    power_w: float
    clocks: NodeClocks  # enforced, not commanded
    braked: bool
    epoch: int  # driver loads; a reloaded driver lost every cap
    phase: Phase
    age_s: float = 0.0


class Device(Protocol):
    """All GPUs of one node.  No call waits for its effect; any may raise OSError."""

    def set_clocks(self, clocks: NodeClocks) -> None:
        """Command these clocks."""

    def brake(self, *, on: bool) -> None:
        """Engage or release the power brake."""

    def read(self) -> DeviceState:
        """Return the present state."""


class NodeAgent:
    def __init__(
        self, *, server: str, device: Device, safe: NodeClocks, now_s: Callable[[], float], guarded: bool = True
    ) -> None:
        """Build the agent; if not `guarded`, the device is left alone until the first contact of a guard."""
        self.server = server
        self._guarded = guarded
        self._device = device
        self._now_s = now_s
        self._safe = safe
        self._lease = CapLease(caps=safe)  # of the guard
        self._commanded: NodeClocks | None = None  # None: nothing, or the device refused
        self._expired = True  # no guard yet

    def renew(self, beat: Beat) -> NodeTelemetry:
        """Renew the guard's lease; raise HeldByAnotherError while another guard holds the node."""
        self._lease = self._lease.renewed(beat.guard, now_s=self._now_s(), lease_s=beat.lease_s)
        self.tick()
        return self.telemetry()

    def set_clocks(self, command: ClocksCommand) -> NodeTelemetry:
        """Set these clocks; repeated clocks are written again, since the driver may have lost them."""
        renewed = self._lease.renewed(command.guard, now_s=self._now_s(), lease_s=command.lease_s)
        self._lease = replace(renewed, caps=NodeClocks(command.token_clock, command.prompt_clock))
        self._commanded = None
        self.tick()
        return self.telemetry()

    def brake(self, command: BrakeCommand) -> NodeTelemetry:
        """Engage or release.  The brake comes first: it is not refused for the sake of a lease."""
        if command.on:
            self._device.brake(on=True)
        self._lease = self._lease.renewed(command.guard, now_s=self._now_s(), lease_s=command.lease_s)
        if not command.on:
            self._device.brake(on=False)
        return self.telemetry()

    def tick(self) -> None:
        """Bring the device to the clocks that apply now."""
        if not self._guarded and self._lease.holder is None:
            return
        now_s = self._now_s()
        clocks = self._lease.caps_at(now_s, safe=self._safe)
        expired = self._lease.expired(now_s)
        if expired is not self._expired:
            log.warning("guard_lost" if expired else "guard_connected", server=self.server, guard=self._lease.holder)
            self._expired = expired
        if clocks is None or clocks == self._commanded:
            return
        try:
            self._device.set_clocks(clocks)
        except OSError as error:
            self._commanded = None  # the next tick tries again
            log.warning("clocks_refused", server=self.server, reason=str(error))
        else:
            self._commanded = clocks

    def telemetry(self) -> NodeTelemetry:
        state = self._device.read()
        return NodeTelemetry(
            server=self.server,
            power_w=state.power_w,
            age_s=state.age_s,
            token_clock=state.clocks.token,
            prompt_clock=state.clocks.prompt,
            braked=state.braked,
            epoch=state.epoch,
            phase=PhaseName[state.phase.name],
            holder=self._lease.holder,
            expired=self._lease.expired(self._now_s()),
        )
