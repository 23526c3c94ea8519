"""The port to what sets clocks: agents on the nodes, BMCs, or the simulator.  Only the port stands here; what speaks
NVML, AMD SMI or Redfish belongs to `deploy`.

Setting is asking; only reading back tells what holds.  A driver that was reloaded has forgotten every cap: its `epoch`
has changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from power.controls import Clocks


@dataclass(frozen=True, slots=True)
class Enforced:
    """What a server says holds on it now."""

    read_at_s: float
    token_clock: float
    prompt_clock: float
    braked: bool
    epoch: int  # counts loads of the driver


class CapActuator(Protocol):
    """Sets the clocks of some servers.  No call waits for the effect; every one may fail in part."""

    @property
    def delay_s(self) -> float:
        """Declared: from the order to its effect."""

    def set_clocks(self, servers: Sequence[str], clocks: Clocks) -> Mapping[str, str]:
        """Ask for these clocks; returns the servers that refused, each with the reason."""

    def brake(self, servers: Sequence[str], *, on: bool) -> Mapping[str, str]:
        """Engage or release the power brake."""

    def enforced(self) -> Mapping[str, Enforced]:
        """The last that each server said of itself; a server that has never spoken is missing."""
