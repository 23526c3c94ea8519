"""Who asked for which cap on which GPU, and until when.  Pure: the time is an argument.

    in force   what was asked
    lapsed     the slower of that and the safe caps, until its holder speaks again or releases it
    released   nothing

What has to hold on a GPU is the lowest over all its orders.  A GPU never speeds up because a holder fell silent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from deploy.gpu.port import NO_CAPS, Caps


@dataclass(frozen=True, slots=True, kw_only=True)
class CapOrder:
    """One holder's word about one GPU."""

    holder: str
    uuid: str
    caps: Caps
    until_s: float  # by the machine's steady clock

    def lapsed(self, now_s: float) -> bool:
        """Whether its holder has been silent for too long."""
        return now_s >= self.until_s

    def caps_at(self, now_s: float, *, safe: Caps) -> Caps:
        """What it comes to."""
        return self.caps.slower(safe) if self.lapsed(now_s) else self.caps


@dataclass(slots=True)
class OrderBook:
    """All orders of one node."""

    _orders: dict[tuple[str, str], CapOrder] = field(default_factory=dict)

    def take(self, order: CapOrder) -> None:
        """It replaces what the same holder said of the same GPU."""
        self._orders[order.holder, order.uuid] = order

    def renew(self, holder: str, *, until_s: float) -> bool:
        """A sign of life; whether there was anything to renew."""
        keys = [key for key in self._orders if key[0] == holder]
        for key in keys:
            self._orders[key] = replace(self._orders[key], until_s=until_s)
        return bool(keys)

    def release(self, holder: str) -> bool:
        """Its holder wants nothing any more; whether it wanted anything."""
        keys = [key for key in self._orders if key[0] == holder]
        for key in keys:
            del self._orders[key]
        return bool(keys)

    def wanted(self, uuid: str, *, now_s: float, safe: Caps) -> Caps:
        """The lowest of all."""
        wanted = NO_CAPS
        for order in self.of(uuid):
            wanted = wanted.slower(order.caps_at(now_s, safe=safe))
        return wanted

    def of(self, uuid: str) -> Iterator[CapOrder]:
        """Whoever wants anything of it."""
        return (order for order in self._orders.values() if order.uuid == uuid)

    def all(self) -> Iterable[CapOrder]:
        """Every order."""
        return tuple(self._orders.values())
