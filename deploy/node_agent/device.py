"""The interface of the agent to the GPUs of its node.

`deploy.node_agent.gpu.node.GpuNode` implements it for real GPUs, `deploy.node_agent.simulated` without hardware.
"""

from typing import NamedTuple, Protocol

from power.controls import NodeClocks, Phase


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
