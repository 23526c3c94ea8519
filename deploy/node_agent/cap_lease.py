"""The lease of a cap: the holder renews the lease, and the cap expires by itself without renewal.

    in force    the caps as requested
    expired     SAFE: the slower of these caps and the safe caps of the node; RELEASE: no cap

A holder that dies with a node at full clocks must not leave the node fast.  With SAFE a node never speeds up because
its holder is silent.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import Generic, Protocol, Self, TypeVar

from fleet.errors import FleetwrightError


class OnExpiry(StrEnum):
    SAFE = "safe"
    RELEASE = "release"


class HeldByAnotherError(FleetwrightError):
    """Another holder has an exclusive lease."""


class Slowable(Protocol):
    """Caps that can be combined into the lower of each."""

    def slower(self, other: Self) -> Self:
        """Return the lower of each cap."""


CapsT = TypeVar("CapsT", bound=Slowable)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapLease(Generic[CapsT]):
    caps: CapsT
    holder: str | None = None  # None: no holder yet
    until_s: float = -inf  # monotonic clock
    on_expiry: OnExpiry = OnExpiry.SAFE

    def renewed(self, holder: str, *, now_s: float, lease_s: float) -> Self:
        """Renew an exclusive lease; a new holder takes over an expired one and keeps its caps."""
        if self.holder not in (None, holder) and not self.expired(now_s):
            raise HeldByAnotherError(f"guard {self.holder!r} holds this node for another {self.until_s - now_s:.1f} s")
        return replace(self, holder=holder, until_s=now_s + lease_s)

    def expired(self, now_s: float) -> bool:
        """Return whether the holder did not renew in time, or never existed."""
        return now_s >= self.until_s

    def caps_at(self, now_s: float, *, safe: CapsT) -> CapsT | None:
        """Return the caps that apply now; None: no cap."""
        if not self.expired(now_s):
            return self.caps
        return None if self.on_expiry is OnExpiry.RELEASE else self.caps.slower(safe)
