"""All cap leases on the GPUs of one node: the lowest cap over all holders applies to a GPU."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from deploy.node_agent.cap_lease import CapLease, OnExpiry
from deploy.node_agent.gpu.interface import NO_CAPS, Caps


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCapLease(CapLease[Caps]):
    holder: str
    uuid: str

    def ended(self, now_s: float) -> bool:
        """Return whether the lease has no effect any more."""
        return self.on_expiry is OnExpiry.RELEASE and self.expired(now_s)


@dataclass(slots=True)
class CapLeases:
    """The leases of one node, by holder and GPU."""

    _leases: dict[tuple[str, str], GpuCapLease] = field(default_factory=dict)

    def put(self, lease: GpuCapLease) -> None:
        """Add a lease; it replaces an earlier one of the same holder on the same GPU."""
        self._leases[lease.holder, lease.uuid] = lease

    def release(self, holder: str) -> bool:
        keys = [key for key in self._leases if key[0] == holder]
        for key in keys:
            del self._leases[key]
        return bool(keys)

    def remove_ended(self, now_s: float) -> tuple[GpuCapLease, ...]:
        ended = tuple(lease for lease in self._leases.values() if lease.ended(now_s))
        for lease in ended:
            del self._leases[lease.holder, lease.uuid]
        return ended

    def requested(self, uuid: str, *, now_s: float, safe: Caps) -> Caps:
        requested = NO_CAPS
        for lease in self.on(uuid):
            requested = requested.slower(lease.caps_at(now_s, safe=safe) or NO_CAPS)
        return requested

    def on(self, uuid: str) -> Iterator[GpuCapLease]:
        return (lease for lease in self._leases.values() if lease.uuid == uuid)

    def all(self) -> tuple[GpuCapLease, ...]:
        return tuple(self._leases.values())
