"""Who asked for which cap on which GPU, and until when.  Pure: the time is an argument.

    in force   what was asked
    lapsed     the slower of that and the safe caps, until its holder speaks again or releases it
    released   nothing; so does a lapsed one whose holder asked for that

What has to hold on a GPU is the lowest over all its orders.  A GPU never speeds up because a holder fell silent, unless
that holder was its worker: its wish ends with it, and whoever looks after watts has an order of their own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from deploy.node_agent.gpu.interface import NO_CAPS, Caps


class OnLapse(StrEnum):
    """What becomes of an order whose holder fell silent."""

    SAFE = "safe"
    RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapOrder:
    """One holder's word about one GPU."""

    holder: str
    uuid: str
    caps: Caps
    until_s: float  # by the machine's steady clock
    on_lapse: OnLapse = OnLapse.SAFE

    def lapsed(self, now_s: float) -> bool:
        """Whether its holder has been silent for too long."""
        return now_s >= self.until_s

    def over(self, now_s: float) -> bool:
        """Whether nothing is left of it."""
        return self.on_lapse is OnLapse.RELEASE and self.lapsed(now_s)

    def caps_at(self, now_s: float, *, safe: Caps) -> Caps:
        """What it comes to."""
        if self.over(now_s):
            return NO_CAPS
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

    def clear(self, now_s: float) -> tuple[CapOrder, ...]:
        """Leave out what is over; says what that was."""
        ended = tuple(order for order in self._orders.values() if order.over(now_s))
        for order in ended:
            del self._orders[order.holder, order.uuid]
        return ended

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
