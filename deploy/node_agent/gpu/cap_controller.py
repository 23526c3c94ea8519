"""The reconcile loop of one node's caps: poll each GPU, write the differences, and poll again.

Only `reconcile` and `restore` call the driver, from one thread; requests and reports use other threads.
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
from deploy.node_agent.gpu.cap_state_machine import CapState, Event, Transition, step, target
from deploy.node_agent.gpu.curves import caps_at, curve_of
from deploy.node_agent.gpu.errors import DriverGoneError, GpuError, GpuLostError, NotSupportedError, OutOfRangeError
from deploy.node_agent.gpu.gpu_state import CapKind, GpuState
from deploy.node_agent.gpu.interface import NO_CAPS, Caps, GpuDriver, GpuIdentity, GpuLimits
from deploy.node_agent.gpu.state_file import StateFile
from power.controls import FULL_CLOCK

log = structlog.get_logger()

WATT_TOLERANCE = 1.0  # BMCs and some drivers take whole watts
CLOCK_TOLERANCE_MHZ = 1.0
SETTLE_PERIODS = 4.0  # from a write to its read-back
RESTORE_TRIES = 4  # and one more poll
KEEP_S = 5.0  # renewed leases are stored no more often


class CapController:
    """Keeps the requested caps of one agent's GPUs."""

    def __init__(
        self,
        *,
        gpus: GpuDriver,
        state_file: StateFile,
        acting: bool,
        safe_share: float = FULL_CLOCK,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.gpus, self.acting = gpus, acting
        self.counts: Counter[tuple[CapKind, Event]] = Counter()
        self._state_file, self._now_s, self._sleep = state_file, now_s, sleep
        self._safe_share = safe_share
        self._leases = CapLeases()
        self._lock = threading.RLock()
        self._epoch = gpus.epoch
        self._stored_at_s = -inf
        self._state_file_ok = True
        self._absent: dict[str, Caps] = {}  # original caps, from a killed agent, of GPUs that are missing now
        self._gpu_states = {identity.uuid: self._first(identity) for identity in gpus.identities()}
        if not any(gpu.known for gpu in self._gpu_states.values()):
            raise DriverGoneError(next((s.error for s in self._gpu_states.values() if s.error), "no GPU responds"))
        self._restore_from_state_file()

    def gpu_states(self) -> tuple[GpuState, ...]:
        """Return the last state of every GPU with its planned caps."""
        with self._lock:
            now_s = self._now_s()
            return tuple(replace(s, planned=self._planned(s, now_s=now_s)) for s in self._gpu_states.values())

    def leases(self) -> tuple[GpuCapLease, ...]:
        with self._lock:
            return self._leases.all()

    def request(
        self,
        holder: str,
        caps: Caps,
        *,
        share: float | None = None,
        uuids: Sequence[str] = (),
        until_s: float,
        on_expiry: OnExpiry = OnExpiry.SAFE,
    ) -> None:
        """Request these caps, and this share of each GPU's full clock; without UUIDs on every GPU.

        All errors are raised before any request is stored.
        """
        with self._lock:
            named = tuple(uuids) or tuple(uuid for uuid, gpu in self._gpu_states.items() if gpu.known)
            requested = {uuid: caps if share is None else caps.slower(self._at(uuid, share)) for uuid in named}
            for uuid, each in requested.items():
                self._check(uuid, each)
            for uuid, each in requested.items():
                self._leases.put(GpuCapLease(holder=holder, uuid=uuid, caps=each, until_s=until_s, on_expiry=on_expiry))

    def release(self, holder: str) -> bool:
        with self._lock:
            return self._leases.release(holder)

    def reconcile(self) -> None:
        """Poll every GPU and write the differences."""
        with self._lock:
            over = self._leases.remove_ended(self._now_s())
        for lease in over:
            log.warning("cap_expired", holder=lease.holder, gpu=lease.uuid)
        for uuid in tuple(self._gpu_states):
            self._reconcile_gpu(uuid)
        if self.acting:
            self._update_state_file()

    def restore(self) -> bool:
        """Restore the original caps; return whether all were read back."""
        with self._lock:
            self._leases = CapLeases()
        touched = self._touched()
        if not self.acting:
            return not touched
        if not touched:
            self._update_state_file()
            return True
        self.reconcile()
        for _ in range(RESTORE_TRIES):
            if not self._touched():
                break
            self._sleep(SETTLE_PERIODS * self.gpus.period_s)
            self._retry_refused()
            self.reconcile()
        left = self._touched()
        if left:
            self._restore_without_readback()
            log.warning("caps_not_restored", gpus=left)
        else:
            log.info("caps_restored", gpus=touched)
        return not left

    def _retry_refused(self) -> None:
        for uuid, gpu in self._gpu_states.items():
            power, clock = (cap_state.due_now() for cap_state in gpu.cap_states)
            self._put(replace(self._gpu_states[uuid], cap_states=(power, clock)))

    def _restore_without_readback(self) -> None:
        """Write to unreachable GPUs too: a GPU that cannot be read may accept writes."""
        for uuid, gpu in self._gpu_states.items():
            for kind in CapKind:
                if gpu.lost and gpu.known and gpu.cap_states[kind].touched:
                    with suppress(GpuError):  # the state already has the reason
                        self._set(uuid, kind, gpu.found[kind])

    def _touched(self) -> list[str]:
        return [uuid for uuid, gpu in self._gpu_states.items() if gpu.touched]

    def _first(self, identity: GpuIdentity) -> GpuState:
        """Return the first state of a GPU; an unreachable one is polled again later."""
        settle_s = SETTLE_PERIODS * self.gpus.period_s
        power, clock = (CapState(tolerance=each, settle_s=settle_s) for each in (WATT_TOLERANCE, CLOCK_TOLERANCE_MHZ))
        gpu = GpuState(identity=identity, limits=GpuLimits(), found=NO_CAPS, cap_states=(power, clock), known=False)
        try:
            return self._known(gpu)
        except GpuError as error:
            log.warning("gpu_unreachable", gpu=identity.uuid, reason=str(error))
            return gpu.silent(error)

    def _known(self, gpu: GpuState) -> GpuState:
        """Read limits and original caps, unless a killed agent's state file has the originals."""
        uuid = gpu.identity.uuid
        with _typed(uuid):
            limits, configured = self.gpus.limits(uuid), self.gpus.configured(uuid)
        return replace(gpu, limits=limits, found=gpu.found if gpu.touched else configured, known=True)

    def _restore_from_state_file(self) -> None:
        """Take over the original caps and the leases that a killed agent left."""
        kept = self._state_file.read()
        if kept is None:
            return
        for uuid, found in kept.found.items():
            gpu = self._gpu_states.get(uuid)
            if gpu is None:
                self._absent[uuid] = found.caps
                continue
            # The present value counts as commanded until another one is read.
            power, clock = (
                replace(cap_state, touched=True, before=present)
                for cap_state, present in zip(gpu.cap_states, gpu.found, strict=True)
            )
            self._gpu_states[uuid] = replace(gpu, found=found.caps, cap_states=(power, clock))
        for each in kept.leases:
            if each.uuid in self._gpu_states:
                self._leases.put(each.lease)
        log.warning(
            "caps_recovered",
            gpus=len(kept.found),
            absent=sorted(self._absent),
            leases=len(kept.leases),
            acting=self.acting,
        )

    def _initialised_gpu(self, uuid: str) -> GpuState:
        gpu = self._gpu_states.get(uuid)
        if gpu is None:
            raise OutOfRangeError(f"gpus: no {uuid!r} here; known: {', '.join(self._gpu_states)}")
        if not gpu.known:
            raise GpuLostError(f"gpus: {uuid} did not respond yet: {gpu.error}")
        return gpu

    def _at(self, uuid: str, share: float) -> Caps:
        gpu = self._initialised_gpu(uuid)
        return caps_at(share, limits=gpu.limits, curve=curve_of(gpu.identity.name))

    def _check(self, uuid: str, caps: Caps) -> None:
        limits = self._initialised_gpu(uuid).limits
        if caps.clock_mhz is not None and not limits.clocks_mhz:
            raise NotSupportedError(f"clock_mhz: the clock of {uuid} cannot be locked by {self.gpus.driver}")
        if caps.power_limit_w is not None and limits.max_w is None:
            raise NotSupportedError(f"power_limit_w: the power of {uuid} cannot be limited by {self.gpus.driver}")
        for name, value, least, most in (
            ("power_limit_w", caps.power_limit_w, limits.min_w, limits.max_w),
            ("clock_mhz", caps.clock_mhz, limits.brake_clock_mhz, limits.full_clock_mhz),
        ):
            if value is not None and not (least or 0) <= value <= (most or value):
                raise OutOfRangeError(f"{name}: must be from {least or 0:g} to {most:g} on {uuid}, got {value:g}")

    def _reconcile_gpu(self, uuid: str) -> None:
        gpu = self._gpu_states[uuid]
        try:
            gpu = self._poll(gpu)
        except GpuError as error:
            if not gpu.lost:
                log.warning("gpu_unreachable", gpu=uuid, reason=str(error))
            self._put(self._gpu_states[uuid].silent(error))
            return
        self._put(gpu)
        for kind in CapKind if self.acting else ():
            gpu = self._advance(gpu, kind)
            self._put(gpu)

    def _put(self, gpu: GpuState) -> None:
        with self._lock:
            self._gpu_states[gpu.identity.uuid] = gpu

    def _poll(self, gpu: GpuState) -> GpuState:
        uuid = gpu.identity.uuid
        if not gpu.known:
            gpu = self._known(gpu)
            self._put(gpu)
        with _typed(uuid):
            reading, enforced = self.gpus.read(uuid), self.gpus.enforced(uuid)
            # Another process may have set caps since the start: those are restored later.
            found = gpu.found if gpu.touched or not self._wanted(uuid) else self.gpus.configured(uuid)
        if self.gpus.epoch != self._epoch:
            self._reloaded()
            gpu = self._gpu_states[uuid]
        elif gpu.lost:
            gpu = self._cleared(gpu)  # it may have been reset, which does not show in a locked clock
        now_s = self._now_s()
        gpu = replace(gpu, found=found).polled(
            reading, enforced, now_s=now_s, reports_locked_clock=self.gpus.reports_locked_clock
        )
        with self._lock:
            return replace(gpu, planned=self._planned(gpu, now_s=now_s))

    def _reloaded(self) -> None:
        self._epoch = self.gpus.epoch
        log.warning("driver_reloaded", driver=self.gpus.driver, epoch=self._epoch)
        for uuid, gpu in self._gpu_states.items():
            self._gpu_states[uuid] = self._cleared(gpu)

    def _cleared(self, gpu: GpuState) -> GpuState:
        for kind in CapKind:
            self.counts[kind, Event.CLEARED] += gpu.cap_states[kind].written
        return gpu.cleared()

    def _planned(self, gpu: GpuState, *, now_s: float) -> Caps:
        curve = curve_of(gpu.identity.name)
        safe = caps_at(self._safe_share, limits=gpu.limits, curve=curve)
        return gpu.bounded(self._leases.requested(gpu.identity.uuid, now_s=now_s, safe=safe))

    def _advance(self, gpu: GpuState, kind: CapKind) -> GpuState:
        """Take one step of one cap."""
        wanted, rest, enforced = gpu.planned[kind], gpu.found[kind], gpu.enforced[kind]
        done = step(gpu.cap_states[kind], wanted=wanted, rest=rest, enforced=enforced, now_s=self._now_s())
        if done.event is not None:
            self.counts[kind, done.event] += 1
            log.warning("cap_not_held", gpu=gpu.identity.uuid, cap=kind.name.lower(), reason=done.event.value)
        return self._write(gpu, kind, done, to=target(wanted=wanted, rest=rest))

    def _write(self, gpu: GpuState, kind: CapKind, done: Transition, *, to: float | None) -> GpuState:
        if not done.write:
            return gpu.with_cap_state(kind, done.cap_state)
        try:
            self._store_found(gpu)
            self._set(gpu.identity.uuid, kind, to)
        except GpuError as error:
            self.counts[kind, Event.REFUSED] += 1
            log.warning("cap_refused", gpu=gpu.identity.uuid, cap=kind.name.lower(), reason=str(error))
            return replace(gpu.with_cap_state(kind, done.cap_state.refused(now_s=self._now_s())), error=str(error))
        self.counts[kind, Event.WRITTEN] += 1
        return replace(gpu.with_cap_state(kind, done.cap_state.wrote(to, now_s=self._now_s())), over=0)

    def _set(self, uuid: str, kind: CapKind, value: float | None) -> None:
        with _typed(uuid):
            if kind is CapKind.POWER:
                self.gpus.set_power_limit(uuid, value)
            else:
                self.gpus.lock_clock(uuid, None if value is None else int(value))

    def _wanted(self, uuid: str) -> bool:
        with self._lock:
            return any(self._leases.on(uuid))

    def _update_state_file(self) -> None:
        """Store renewed leases periodically; remove the file when everything is restored and nothing is requested."""
        lasting = any(lease.until_s < inf for lease in self.leases())
        try:
            if self._touched() or lasting or self._absent:
                if self._state_file.in_use and self._now_s() >= self._stored_at_s + KEEP_S:
                    self._store()
            else:
                self._state_file.remove()
        except GpuError as error:
            if self._state_file_ok:
                log.warning("state_file_write_failed", reason=str(error))
            self._state_file_ok = False
        else:
            self._state_file_ok = True

    def _store_found(self, gpu: GpuState) -> None:
        """Store the original caps before a write; a failure matters only if the file lacks those of this GPU."""
        try:
            self._store()
        except GpuError:
            if not self._state_file.knows(gpu.identity.uuid, gpu.found):
                raise

    def _store(self) -> None:
        found = self._absent | {uuid: gpu.found for uuid, gpu in self._gpu_states.items() if gpu.known}
        self._stored_at_s = self._now_s()
        self._state_file.write(found=found, leases=self.leases())


@contextmanager
def _typed(uuid: str) -> Iterator[None]:
    """Turn any error of a driver into one of this GPU, so that the other GPUs keep their caps."""
    try:
        yield
    except GpuError:
        raise
    except Exception as error:
        raise DriverGoneError(f"{uuid}: {type(error).__name__}: {error}") from error
