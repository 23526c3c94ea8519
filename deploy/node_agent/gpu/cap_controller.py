"""Keeps what is wanted of one node's GPUs: looks at each, writes what differs, and looks again.

Only `round` and `restore` speak to the driver, from one thread; orders come and reports go from others.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf

import structlog

from deploy.node_agent.cap_lease import OnExpiry
from deploy.node_agent.gpu.cap_leases import CapLeases, GpuCapLease
from deploy.node_agent.gpu.cap_state_machine import Event, Lever, Step, step, target
from deploy.node_agent.gpu.curves import caps_at, curve_of
from deploy.node_agent.gpu.errors import DriverGoneError, GpuError, GpuLostError, NotSupportedError, OutOfRangeError
from deploy.node_agent.gpu.gpu_state import Kind, Sight
from deploy.node_agent.gpu.interface import NO_CAPS, Caps, GpuIdentity, GpuLimits, Gpus
from deploy.node_agent.gpu.state_file import Memory
from power.controls import FULL_CLOCK

log = structlog.get_logger()

WATT_TOLERANCE = 1.0  # BMCs and some drivers take whole watts
CLOCK_TOLERANCE_MHZ = 1.0
SETTLE_PERIODS = 4.0  # from a write to when it must show
RESTORE_TRIES = 4  # and one look more
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
        self._leases = CapLeases()
        self._lock = threading.RLock()
        self._epoch = gpus.epoch
        self._kept_s = -inf
        self._writes_down = True
        self._absent: dict[str, Caps] = {}  # what a killed agent found of GPUs that are not here now
        self._sights = {identity.uuid: self._first(identity) for identity in gpus.identities()}
        if not any(sight.known for sight in self._sights.values()):
            raise DriverGoneError(next((s.error for s in self._sights.values() if s.error), "no GPU answers"))
        self._recall()

    def sights(self) -> tuple[Sight, ...]:
        """Every GPU as it was last seen, with what is wanted of it now."""
        with self._lock:
            now_s = self._now_s()
            return tuple(replace(s, planned=self._planned(s, now_s=now_s)) for s in self._sights.values())

    def orders(self) -> tuple[GpuCapLease, ...]:
        """Of everybody."""
        with self._lock:
            return self._leases.all()

    def order(
        self,
        holder: str,
        caps: Caps,
        *,
        share: float | None = None,
        uuids: Sequence[str] = (),
        until_s: float,
        on_lapse: OnExpiry = OnExpiry.SAFE,
    ) -> None:
        """Hold these caps, and this share of each GPU's own full clock; without UUIDs on every GPU.

        Raises what the port's errors say before anything is taken.
        """
        with self._lock:
            named = tuple(uuids) or tuple(uuid for uuid, sight in self._sights.items() if sight.known)
            asked = {uuid: caps if share is None else caps.slower(self._at(uuid, share)) for uuid in named}
            for uuid, each in asked.items():
                self._check(uuid, each)
            for uuid, each in asked.items():
                self._leases.put(GpuCapLease(holder=holder, uuid=uuid, caps=each, until_s=until_s, on_lapse=on_lapse))

    def release(self, holder: str) -> bool:
        """Whether it held anything."""
        with self._lock:
            return self._leases.release(holder)

    def round(self) -> None:
        """Look at every GPU, and write what differs."""
        with self._lock:
            over = self._leases.remove_ended(self._now_s())
        for order in over:
            log.warning("cap_expired", holder=order.holder, gpu=order.uuid)
        for uuid in tuple(self._sights):
            self._round_of(uuid)
        if self.acting:
            self._write_down()

    def restore(self) -> bool:
        """Put everything back as it was found; whether all of it was read back."""
        with self._lock:
            self._leases = CapLeases()
        touched = self._touched()
        if not self.acting:
            return not touched
        if not touched:
            self._write_down()
            return True
        self.round()
        for _ in range(RESTORE_TRIES):
            if not self._touched():
                break
            self._sleep(SETTLE_PERIODS * self.gpus.period_s)
            self._hurry()
            self.round()
        left = self._touched()
        if left:
            self._restore_unseen()
            log.warning("caps_not_restored", gpus=left)
        else:
            log.info("caps_restored", gpus=touched)
        return not left

    def _hurry(self) -> None:
        for uuid, sight in self._sights.items():
            power, clock = (lever.hurried() for lever in sight.levers)
            self._put(replace(self._sights[uuid], levers=(power, clock)))

    def _restore_unseen(self) -> None:
        """Of GPUs that do not answer: what cannot be read may be set all the same."""
        for uuid, sight in self._sights.items():
            for kind in Kind:
                if sight.lost and sight.known and sight.levers[kind].touched:
                    with suppress(GpuError):  # said as the reason why it is lost
                        self._set(uuid, kind, sight.found[kind])

    def _touched(self) -> list[str]:
        return [uuid for uuid, sight in self._sights.items() if sight.touched]

    def _first(self, identity: GpuIdentity) -> Sight:
        """One that does not answer yet is asked again at every look."""
        settle_s = SETTLE_PERIODS * self.gpus.period_s
        power, clock = (Lever(tolerance=each, settle_s=settle_s) for each in (WATT_TOLERANCE, CLOCK_TOLERANCE_MHZ))
        sight = Sight(identity=identity, limits=GpuLimits(), found=NO_CAPS, levers=(power, clock), known=False)
        try:
            return self._known(sight)
        except GpuError as error:
            log.warning("gpu_silent", gpu=identity.uuid, reason=str(error))
            return sight.silent(error)

    def _known(self, sight: Sight) -> Sight:
        """What may be set, and what stands, unless a killed agent's word for that is there."""
        uuid = sight.identity.uuid
        with _typed(uuid):
            limits, standing = self.gpus.limits(uuid), self.gpus.standing(uuid)
        return replace(sight, limits=limits, found=sight.found if sight.touched else standing, known=True)

    def _recall(self) -> None:
        """An agent that was killed left its caps: what it found is what was found."""
        kept = self._memory.recall()
        if kept is None:
            return
        for uuid, found in kept.found.items():
            sight = self._sights.get(uuid)
            if sight is None:
                self._absent[uuid] = found.caps
                continue
            # What stands now is what it was told, as long as nothing else is seen.
            power, clock = (
                replace(lever, touched=True, before=stands)
                for lever, stands in zip(sight.levers, sight.found, strict=True)
            )
            self._sights[uuid] = replace(sight, found=found.caps, levers=(power, clock))
        for each in kept.orders:
            if each.uuid in self._sights:
                self._leases.put(each.order)
        log.warning(
            "caps_of_a_killed_agent",
            gpus=len(kept.found),
            absent=sorted(self._absent),
            orders=len(kept.orders),
            acting=self.acting,
        )

    def _known_sight(self, uuid: str) -> Sight:
        sight = self._sights.get(uuid)
        if sight is None:
            raise OutOfRangeError(f"gpus: no {uuid!r} here; known: {', '.join(self._sights)}")
        if not sight.known:
            raise GpuLostError(f"gpus: {uuid} has not answered yet: {sight.error}")
        return sight

    def _at(self, uuid: str, share: float) -> Caps:
        sight = self._known_sight(uuid)
        return caps_at(share, limits=sight.limits, curve=curve_of(sight.identity.name))

    def _check(self, uuid: str, caps: Caps) -> None:
        limits = self._known_sight(uuid).limits
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
            if not sight.lost:
                log.warning("gpu_silent", gpu=uuid, reason=str(error))
            self._put(self._sights[uuid].silent(error))
            return
        self._put(sight)
        for kind in Kind if self.acting else ():
            sight = self._pull(sight, kind)
            self._put(sight)

    def _put(self, sight: Sight) -> None:
        with self._lock:
            self._sights[sight.identity.uuid] = sight

    def _look(self, sight: Sight) -> Sight:
        uuid = sight.identity.uuid
        if not sight.known:
            sight = self._known(sight)
            self._put(sight)
        with _typed(uuid):
            reading, enforced = self.gpus.read(uuid), self.gpus.enforced(uuid)
            # Another hand may have set something since the start: that is what will be put back.
            found = sight.found if sight.touched or not self._wanted(uuid) else self.gpus.standing(uuid)
        if self.gpus.epoch != self._epoch:
            self._reloaded()
            sight = self._sights[uuid]
        elif sight.lost:
            sight = self._forgotten(sight)  # it may have been reset: of a lock there is no telling
        now_s = self._now_s()
        sight = replace(sight, found=found).seen(reading, enforced, now_s=now_s, reads_locks=self.gpus.reads_locks)
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
        return sight.bounded(self._leases.requested(sight.identity.uuid, now_s=now_s, safe=safe))

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
            self._remember_found(sight)
            self._set(sight.identity.uuid, kind, to)
        except GpuError as error:
            self.counts[kind, Event.REFUSED] += 1
            log.warning("cap_refused", gpu=sight.identity.uuid, lever=kind.name.lower(), reason=str(error))
            return replace(sight.with_lever(kind, done.lever.refused(now_s=self._now_s())), error=str(error))
        self.counts[kind, Event.WRITTEN] += 1
        return replace(sight.with_lever(kind, done.lever.wrote(to, now_s=self._now_s())), over=0)

    def _set(self, uuid: str, kind: Kind, value: float | None) -> None:
        with _typed(uuid):
            if kind is Kind.POWER:
                self.gpus.set_power_limit(uuid, value)
            else:
                self.gpus.lock_clock(uuid, None if value is None else int(value))

    def _wanted(self, uuid: str) -> bool:
        with self._lock:
            return any(self._leases.on(uuid))

    def _write_down(self) -> None:
        """Renewed orders now and then; nothing once everything is as it was found and nobody wants anything."""
        lasting = any(order.until_s < inf for order in self.orders())
        try:
            if self._touched() or lasting or self._absent:
                if self._memory.in_use and self._now_s() >= self._kept_s + KEEP_S:
                    self._remember()
            else:
                self._memory.forget()
        except GpuError as error:
            if self._writes_down:
                log.warning("caps_not_written_down", reason=str(error))
            self._writes_down = False
        else:
            self._writes_down = True

    def _remember_found(self, sight: Sight) -> None:
        """Nothing is set that could not be put back; that an order cannot be written down keeps nobody from it."""
        try:
            self._remember()
        except GpuError:
            if not self._memory.knows(sight.identity.uuid, sight.found):
                raise

    def _remember(self) -> None:
        found = self._absent | {uuid: sight.found for uuid, sight in self._sights.items() if sight.known}
        self._kept_s = self._now_s()
        self._memory.keep(found=found, orders=self.orders())


@contextmanager
def _typed(uuid: str) -> Iterator[None]:
    """Whatever comes of a senseless answer is a refusal of this one GPU: the others must not go without their caps."""
    try:
        yield
    except GpuError:
        raise
    except Exception as error:
        raise DriverGoneError(f"{uuid}: {type(error).__name__}: {error}") from error
