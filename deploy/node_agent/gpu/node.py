"""All GPUs of one node as the device of the guard: clocks as shares of the full clock, by phase, and a brake.

A GPU has one clock, so the clock of the node's present phase applies, and the lower one if no worker reports a phase.
A separate thread calls the driver, so a driver that hangs does not block responses, and every response has the age of
its values.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from math import inf
from typing import NamedTuple

import structlog

from deploy.node_agent.agent import DeviceState
from deploy.node_agent.gpu.cap_controller import CapController
from deploy.node_agent.gpu.curves import brake_caps, caps_at, curve_of, share_of
from deploy.node_agent.gpu.errors import DriverGoneError, GpuError
from deploy.node_agent.gpu.gpu_state import GpuState
from deploy.node_agent.gpu.interface import Caps
from power.controls import NodeClocks, Phase

# The phase with the highest power counts for the node.
_HEAVIEST = (Phase.PROMPT, Phase.TRAINING, Phase.TOKEN, Phase.IDLE, Phase.PARKED)

log = structlog.get_logger()

GUARD = "guard"  # the holder of the guard's caps
STALE_PERIODS = 8.0  # an older poll counts as failed


class PhaseSource(StrEnum):
    WORKERS = "workers"
    UTILIZATION = "utilization"


class NodePhase(NamedTuple):
    phase: Phase
    source: PhaseSource


class WorkloadPhases:
    """The phases that workers reported, each until its lease expires."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: dict[str, tuple[Phase, float]] = {}

    def report(self, worker: str, phase: Phase, *, until_s: float) -> None:
        """Store a worker's phase; it replaces the worker's last one."""
        with self._lock:
            self._reported[worker] = (phase, until_s)

    def now(self, gpu_states: Iterable[GpuState], *, now_s: float) -> NodePhase:
        with self._lock:
            self._reported = {worker: reported for worker, reported in self._reported.items() if now_s < reported[1]}
            phases = {phase for phase, _until_s in self._reported.values()}
        if phases:
            return NodePhase(next(phase for phase in _HEAVIEST if phase in phases), PhaseSource.WORKERS)
        idle = all(gpu.reading.utilization == 0 for gpu in gpu_states)
        return NodePhase(Phase.IDLE if idle else Phase.PROMPT, PhaseSource.UTILIZATION)


class GpuNode:
    """One node's GPUs and the thread that reconciles them."""

    def __init__(
        self, *, cap_controller: CapController, phases: WorkloadPhases, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.cap_controller, self.phases, self.now_s = cap_controller, phases, now_s
        self._commanded: NodeClocks | None = None
        self._braked = False
        self._lock = threading.Lock()
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def set_clocks(self, clocks: NodeClocks) -> None:
        """Request these clocks; the thread writes them at once."""
        with self._lock:
            self._commanded = clocks
        self.refresh()
        self._wake.set()

    def brake(self, *, on: bool) -> None:
        """Set the lowest clock or power limit: these GPUs have no brake wire."""
        with self._lock:
            self._braked = on
        self.refresh()
        self._wake.set()

    def read(self) -> DeviceState:
        """Return the state of the last poll; raise DriverGoneError if it is too old."""
        gpu_states, now_s = self.cap_controller.gpu_states(), self.now_s()
        reachable = [gpu for gpu in gpu_states if not gpu.lost]
        age_s = now_s - min((gpu.polled_at_s for gpu in reachable), default=-inf)
        if age_s > STALE_PERIODS * self.cap_controller.gpus.period_s:
            reason = next((gpu.error for gpu in gpu_states if gpu.error), "the driver does not respond")
            raise DriverGoneError(reason)
        node_phase = self.phases.now(reachable, now_s=now_s)
        return DeviceState(
            power_w=sum(map(_power_w, gpu_states)),
            clocks=NodeClocks(*(self._clock(phase, reachable) for phase in (Phase.TOKEN, Phase.PROMPT))),
            braked=self._braked and all(_within(gpu, _brake_of(gpu)) for gpu in reachable),
            epoch=self.cap_controller.gpus.epoch,
            phase=node_phase.phase,
            age_s=max(0.0, age_s),
        )

    def node_phase(self) -> NodePhase:
        return self.phases.now(self.cap_controller.gpu_states(), now_s=self.now_s())

    def refresh(self) -> None:
        """Bring the guard's commands to the phase that the node is in now."""
        with self._lock:
            commanded, braked = self._commanded, self._braked
        if commanded is None and not braked:
            return
        gpu_states = self.cap_controller.gpu_states()
        share = _share(commanded or NodeClocks(), self.phases.now(gpu_states, now_s=self.now_s()))
        refused: list[GpuError] = []
        for gpu in gpu_states:
            if not gpu.known:
                continue  # nothing can be set there; its watts are counted
            caps = caps_at(share, limits=gpu.limits, curve=curve_of(gpu.identity.name))
            caps = caps.slower(_brake_of(gpu)) if braked else caps
            try:
                self.cap_controller.request(GUARD, caps, uuids=(gpu.identity.uuid,), until_s=inf)
            except GpuError as error:
                refused.append(error)  # the others first
        if refused:
            raise refused[0]

    def wake(self) -> None:
        """Poll now, because a cap was requested."""
        self._wake.set()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="caps", daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Restore and close the driver; return whether everything was restored."""
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STALE_PERIODS * self.cap_controller.gpus.period_s + 5.0)
            if self._thread.is_alive():
                log.error("driver_hangs", driver=self.cap_controller.gpus.driver)
                return False
        try:
            return self.cap_controller.restore()
        finally:
            with suppress(GpuError):  # a driver that is gone cannot be closed
                self.cap_controller.gpus.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.clear()
            for work in (self.refresh, self.cap_controller.reconcile):
                try:
                    work()
                except Exception:
                    # The next poll may succeed; responses have the age of the last one.
                    log.exception("reconcile_failed", driver=self.cap_controller.gpus.driver)
            self._wake.wait(self.cap_controller.gpus.period_s)

    def _clock(self, phase: Phase, gpu_states: list[GpuState]) -> float:
        """Return the commanded clock of a phase if the enforced one is not higher, else the enforced one."""
        shares = [share_of(s.enforced, limits=s.limits, curve=curve_of(s.identity.name)) for s in gpu_states]
        if self._commanded is None:
            return max(shares)
        commanded, node_phase = _of(self._commanded, phase), self.phases.now(gpu_states, now_s=self.now_s())
        # The clock of another phase is set when that phase comes.
        due = max(commanded, _share(self._commanded, node_phase))
        held = all(_within(s, caps_at(due, limits=s.limits, curve=curve_of(s.identity.name))) for s in gpu_states)
        return commanded if held else max(shares)


def _of(clocks: NodeClocks, phase: Phase) -> float:
    if phase is Phase.TOKEN:
        return clocks.token
    return clocks.prompt if phase in (Phase.PROMPT, Phase.TRAINING) else min(clocks)


def _share(clocks: NodeClocks, node_phase: NodePhase) -> float:
    """Return the share that applies: the lower one if no worker reports its phase."""
    return _of(clocks, node_phase.phase) if node_phase.source is PhaseSource.WORKERS else min(clocks)


def _brake_of(gpu: GpuState) -> Caps:
    return brake_caps(limits=gpu.limits, curve=curve_of(gpu.identity.name))


def _within(gpu: GpuState, caps: Caps) -> bool:
    """Return whether the enforced caps are at most these, within the drivers' rounding."""
    for cap_state, requested, enforced in zip(gpu.cap_states, caps, gpu.enforced, strict=True):
        if requested is not None and (enforced is None or enforced > requested + cap_state.tolerance):
            return False
    return True


def _power_w(gpu: GpuState) -> float:
    """Return the power of a board with its share of the server; the maximum of a board that does not respond."""
    board_w, curve = gpu.reading.power_w, curve_of(gpu.identity.name)
    if board_w is None or gpu.lost:
        board_w = gpu.limits.max_w or (0.0 if curve is None else curve.busy_w().high)
    return board_w if curve is None else board_w + curve.server_w(board_w).mid
