"""The dead man's switch of a node: what the guard told holds only as long as the guard is heard.

    heard      clocks as told; the node's own safe clocks until it was told any
    lapsed     the slower of what was told and the safe clocks

A guard that died with the row at full clocks would leave nobody to slow it.  A node never speeds up because it hears
nothing, and never lets go of the brake by itself.  While one guard is heard, no other is obeyed.
"""

from typing import NamedTuple

from fleet.errors import FleetwrightError


class NodeClocks(NamedTuple):
    """Of one node, as shares of the full clock."""

    token: float = 1.0
    prompt: float = 1.0

    def slower(self, other: "NodeClocks") -> "NodeClocks":
        """The lower of each."""
        return NodeClocks(min(self.token, other.token), min(self.prompt, other.prompt))


class NotTheGuardError(FleetwrightError):
    """Another guard holds this node."""


class Lease(NamedTuple):
    """Who is obeyed, and until when."""

    safe: NodeClocks
    holder: str | None = None
    until_s: float = -float("inf")
    told: NodeClocks | None = None  # nothing yet

    def heard(self, holder: str, *, now_s: float, lease_s: float) -> "Lease":
        """A sign of life of a guard."""
        if self.holder not in (None, holder) and now_s < self.until_s:
            raise NotTheGuardError(f"guard {self.holder!r} is obeyed here for another {self.until_s - now_s:.1f} s")
        return self._replace(holder=holder, until_s=now_s + lease_s)

    def with_clocks(self, clocks: NodeClocks) -> "Lease":
        """Told other clocks."""
        return self._replace(told=clocks)

    def lapsed(self, now_s: float) -> bool:
        """Whether no guard has been heard for too long, or ever."""
        return now_s >= self.until_s

    def clocks_at(self, now_s: float) -> NodeClocks:
        """What has to hold."""
        told = self.told or self.safe
        return told.slower(self.safe) if self.lapsed(now_s) else told
