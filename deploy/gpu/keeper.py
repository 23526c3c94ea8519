"""Keeps what is wanted of one node's GPUs: looks at each, writes what differs, and looks again.

Only `round` and `restore` speak to the driver, from one thread; orders come and reports go from others.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

import structlog

from deploy.gpu.curves import caps_at, curve_of
from deploy.gpu.errors import GpuError, NotSupportedError, OutOfRangeError
from deploy.gpu.holding import Event, Lever, Step, step, target
from deploy.gpu.memory import Memory
from deploy.gpu.orders import CapOrder, OrderBook
from deploy.gpu.port import Caps, GpuIdentity, Gpus
from deploy.gpu.sighting import Kind, Sight
from power.levers import FULL_CLOCK

log = structlog.get_logger()

WATT_TOLERANCE = 1.0  # BMCs and some drivers take whole watts
CLOCK_TOLERANCE_MHZ = 1.0
SETTLE_PERIODS = 4.0  # from a write to when it must show
RESTORE_TRIES = 4
KEEP_S = 5.0  # orders that were renewed are written down no more often


class Keeper:
    """Everything that one agent has to do with its GPUs."""

    def __init__(
        self,
        *,
        gpus: Gpus,
        memory: Memory,
        acting: bool,
        safe_share: float = FULL_CLOCK,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.gpus, self.acting = gpus, acting
        self.counts: Counter[tuple[Kind, Event]] = Counter()
        self._memory, self._now_s, self._sleep = memory, now_s, sleep
        self._safe_share = safe_share
        self._book = OrderBook()
        self._lock = threading.RLock()
        self._epoch = gpus.epoch
        self._kept_s = -inf
        self._sights = {identity.uuid: self._first(identity) for identity in gpus.identities()}
        self._recall()

    def sights(self) -> tuple[Sight, ...]:
        """Every GPU as it was last seen, with what is wanted of it now."""
        with self._lock:
            now_s = self._now_s()
            return tuple(replace(s, planned=self._planned(s, now_s=now_s)) for s in self._sights.values())

    def orders(self) -> tuple[CapOrder, ...]:
        """Of everybody."""
        with self._lock:
            return tuple(self._book.all())

    def order(self, holder: str, caps: Caps, *, uuids: Sequence[str] = (), until_s: float) -> None:
        """Hold these caps; without UUIDs on every GPU.  Raises what the port's errors say before anything is taken."""
        with self._lock:
            named = tuple(uuids) or tuple(self._sights)
            for uuid in named:
                self._check(uuid, caps)
            for uuid in named:
                self._book.take(CapOrder(holder=holder, uuid=uuid, caps=caps, until_s=until_s))

    def release(self, holder: str) -> bool:
        """Whether it held anything."""
        with self._lock:
            return self._book.release(holder)

    def round(self) -> None:
        """Look at every GPU, and write what differs."""
        for uuid in tuple(self._sights):
            self._round_of(uuid)
        if any(sight.touched for sight in self._sights.values()) and self._now_s() >= self._kept_s + KEEP_S:
            with suppress(GpuError):  # said when a cap was to be set
                self._remember()

    def restore(self) -> bool:
        """Put everything back as it was found; whether all of it was read back."""
        with self._lock:
            self._book = OrderBook()
        touched = self._touched()
        if not self.acting or not touched:
            return not touched
        for _ in range(RESTORE_TRIES):
            self.round()
            if not self._touched():
                self._memory.forget()
                log.info("caps_restored", gpus=touched)
                return True
            self._sleep(SETTLE_PERIODS * self.gpus.period_s)
        log.warning("caps_not_restored", gpus=self._touched())
        return False

    def _touched(self) -> list[str]:
        return [uuid for uuid, sight in self._sights.items() if sight.touched]

    def _first(self, identity: GpuIdentity) -> Sight:
        settle_s = SETTLE_PERIODS * self.gpus.period_s
        return Sight(
            identity=identity,
            limits=self.gpus.limits(identity.uuid),
            found=self.gpus.standing(identity.uuid),
            levers=(
                Lever(tolerance=WATT_TOLERANCE, settle_s=settle_s),
                Lever(tolerance=CLOCK_TOLERANCE_MHZ, settle_s=settle_s),
            ),
        )

    def _recall(self) -> None:
        """An agent that was killed left its caps: what it found is what was found."""
        kept = self._memory.recall()
        if kept is None:
            return
        for uuid, found in kept.found.items():
            if uuid in self._sights:
                sight = self._sights[uuid]
                power, clock = (replace(lever, touched=True) for lever in sight.levers)
                self._sights[uuid] = replace(sight, found=found.caps, levers=(power, clock))
        for each in kept.orders:
            if each.uuid in self._sights:
                self._book.take(each.order)
        log.warning("caps_of_a_killed_agent", gpus=len(kept.found), orders=len(kept.orders), acting=self.acting)

    def _check(self, uuid: str, caps: Caps) -> None:
        sight = self._sights.get(uuid)
        if sight is None:
            raise OutOfRangeError(f"gpus: no {uuid!r} here; known: {', '.join(self._sights)}")
        limits = sight.limits
        if caps.clock_mhz is not None and not limits.clocks_mhz:
            raise NotSupportedError(f"clock_mhz: the clock of {uuid} cannot be locked by {self.gpus.driver}")
        if caps.power_limit_w is not None and limits.most_w is None:
            raise NotSupportedError(f"power_limit_w: the power of {uuid} cannot be limited by {self.gpus.driver}")
        for name, value, least, most in (
            ("power_limit_w", caps.power_limit_w, limits.least_w, limits.most_w),
            ("clock_mhz", caps.clock_mhz, limits.brake_clock_mhz, limits.full_clock_mhz),
        ):
            if value is not None and not (least or 0) <= value <= (most or value):
                raise OutOfRangeError(f"{name}: must be from {least or 0:g} to {most:g} on {uuid}, got {value:g}")

    def _round_of(self, uuid: str) -> None:
        sight = self._sights[uuid]
        try:
            sight = self._look(sight)
        except GpuError as error:
            sight = sight.silent(error)
        else:
            for kind in Kind if self.acting else ():
                sight = self._pull(sight, kind)
        with self._lock:
            self._sights[uuid] = sight

    def _look(self, sight: Sight) -> Sight:
        uuid = sight.identity.uuid
        reading, enforced = self.gpus.read(uuid), self.gpus.enforced(uuid)
        if self.gpus.epoch != self._epoch:
            self._reloaded()
            sight = self._sights[uuid]
        elif sight.lost:
            sight = self._forgotten(sight)  # it may have been reset: of a lock there is no telling
        now_s = self._now_s()
        sight = sight.seen(reading, enforced, now_s=now_s, reads_locks=self.gpus.reads_locks)
        with self._lock:
            return replace(sight, planned=self._planned(sight, now_s=now_s))

    def _reloaded(self) -> None:
        self._epoch = self.gpus.epoch
        log.warning("driver_reloaded", driver=self.gpus.driver, epoch=self._epoch)
        for uuid, sight in self._sights.items():
            self._sights[uuid] = self._forgotten(sight)

    def _forgotten(self, sight: Sight) -> Sight:
        for kind in Kind:
            self.counts[kind, Event.FORGOTTEN] += sight.levers[kind].written
        return sight.forgotten()

    def _planned(self, sight: Sight, *, now_s: float) -> Caps:
        curve = curve_of(sight.identity.name)
        safe = caps_at(self._safe_share, limits=sight.limits, curve=curve)
        return sight.bounded(self._book.wanted(sight.identity.uuid, now_s=now_s, safe=safe))

    def _pull(self, sight: Sight, kind: Kind) -> Sight:
        """One lever, one step."""
        wanted, rest, enforced = sight.planned[kind], sight.found[kind], sight.enforced[kind]
        done = step(sight.levers[kind], wanted=wanted, rest=rest, enforced=enforced, now_s=self._now_s())
        if done.event is not None:
            self.counts[kind, done.event] += 1
            log.warning("cap_not_held", gpu=sight.identity.uuid, lever=kind.name.lower(), reason=done.event.value)
        return self._write(sight, kind, done, to=target(wanted=wanted, rest=rest))

    def _write(self, sight: Sight, kind: Kind, done: Step, *, to: float | None) -> Sight:
        if not done.write:
            return sight.with_lever(kind, done.lever)
        try:
            self._remember()
            self._set(sight.identity.uuid, kind, to)
        except GpuError as error:
            self.counts[kind, Event.REFUSED] += 1
            log.warning("cap_refused", gpu=sight.identity.uuid, lever=kind.name.lower(), reason=str(error))
            return replace(sight.with_lever(kind, done.lever.refused(now_s=self._now_s())), error=str(error))
        self.counts[kind, Event.WRITTEN] += 1
        return replace(sight.with_lever(kind, done.lever.wrote(to, now_s=self._now_s())), over=0)

    def _set(self, uuid: str, kind: Kind, value: float | None) -> None:
        if kind is Kind.POWER:
            self.gpus.set_power_limit(uuid, value)
        else:
            self.gpus.lock_clock(uuid, None if value is None else int(value))

    def _remember(self) -> None:
        found = {uuid: sight.found for uuid, sight in self._sights.items()}
        self._memory.keep(found=found, orders=self.orders())
        self._kept_s = self._now_s()
