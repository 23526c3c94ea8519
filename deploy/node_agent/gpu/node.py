"""All GPUs of one node as the guard's device: clocks as shares of the full one, by phase, and a brake.

A GPU has one clock, so the one that holds is that of the phase that the node is in, and the lower of both where nobody
says.  A thread of its own speaks to the driver: a driver that hangs keeps nobody from an answer, and every answer says
how old it is.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

import structlog

from deploy.node_agent.device import DeviceState
from deploy.node_agent.gpu.cap_controller import Keeper
from deploy.node_agent.gpu.curves import brake_caps, caps_at, curve_of, share_of
from deploy.node_agent.gpu.errors import DriverGoneError, GpuError
from deploy.node_agent.gpu.gpu_state import Sight
from deploy.node_agent.gpu.interface import Caps
from deploy.node_agent.gpu.workload_phase import Doing, Phases, PhaseSource
from power.controls import NodeClocks, Phase

log = structlog.get_logger()

GUARD = "guard"  # as whose orders these count
STALE_PERIODS = 8.0  # a look that is older is no look


class GpuNode:
    """One node's GPUs and the thread that keeps them."""

    def __init__(self, *, keeper: Keeper, phases: Phases, now_s: Callable[[], float] = time.monotonic) -> None:
        self.keeper, self.phases, self.now_s = keeper, phases, now_s
        self._told: NodeClocks | None = None
        self._braked = False
        self._lock = threading.Lock()
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def set_clocks(self, clocks: NodeClocks) -> None:
        """Ask; the thread does it at once."""
        with self._lock:
            self._told = clocks
        self.refresh()
        self._wake.set()

    def brake(self, *, on: bool) -> None:
        """The lowest clock, or the least power: these GPUs have no wire to pull."""
        with self._lock:
            self._braked = on
        self.refresh()
        self._wake.set()

    def read(self) -> DeviceState:
        """The last look; DriverGoneError when it is too old to be one."""
        sights, now_s = self.keeper.sights(), self.now_s()
        seen = [sight for sight in sights if not sight.lost]
        age_s = now_s - min((sight.seen_s for sight in seen), default=-inf)
        if age_s > STALE_PERIODS * self.keeper.gpus.period_s:
            reason = next((sight.error for sight in sights if sight.error), "the driver does not answer")
            raise DriverGoneError(reason)
        doing = self.phases.now(seen, now_s=now_s)
        return DeviceState(
            power_w=sum(map(_power_w, sights)),
            clocks=NodeClocks(*(self._clock(phase, seen) for phase in (Phase.TOKEN, Phase.PROMPT))),
            braked=self._braked and all(_within(sight, _brake_of(sight)) for sight in seen),
            epoch=self.keeper.gpus.epoch,
            phase=doing.phase,
            age_s=max(0.0, age_s),
        )

    def doing(self) -> Doing:
        """The phase, and who says so."""
        return self.phases.now(self.keeper.sights(), now_s=self.now_s())

    def refresh(self) -> None:
        """Bring the guard's orders to the phase that the node is in now."""
        with self._lock:
            told, braked = self._told, self._braked
        if told is None and not braked:
            return
        sights = self.keeper.sights()
        share = _share(told or NodeClocks(), self.phases.now(sights, now_s=self.now_s()))
        refused: list[GpuError] = []
        for sight in sights:
            if not sight.known:
                continue  # nothing can be set there; its watts are counted
            caps = caps_at(share, limits=sight.limits, curve=curve_of(sight.identity.name))
            caps = caps.slower(_brake_of(sight)) if braked else caps
            try:
                self.keeper.order(GUARD, caps, uuids=(sight.identity.uuid,), until_s=inf)
            except GpuError as error:
                refused.append(error)  # the others first
        if refused:
            raise refused[0]

    def wake(self) -> None:
        """Something was ordered: look now."""
        self._wake.set()

    def start(self) -> None:
        """Keep from now on."""
        self._thread = threading.Thread(target=self._run, name="caps", daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Restore, and let go of the driver; whether everything is as it was found."""
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STALE_PERIODS * self.keeper.gpus.period_s + 5.0)
            if self._thread.is_alive():
                log.error("driver_hangs", driver=self.keeper.gpus.driver)
                return False
        try:
            return self.keeper.restore()
        finally:
            with suppress(GpuError):  # of a driver that is gone there is nothing to let go
                self.keeper.gpus.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.clear()
            for work in (self.refresh, self.keeper.round):
                try:
                    work()
                except Exception:
                    # The next look may be better; meanwhile every answer says how old its look is.
                    log.exception("round_failed", driver=self.keeper.gpus.driver)
            self._wake.wait(self.keeper.gpus.period_s)

    def _clock(self, phase: Phase, sights: list[Sight]) -> float:
        """What an order for this phase came to: as told where what is enforced is no milder, else what is enforced."""
        shares = [share_of(s.enforced, limits=s.limits, curve=curve_of(s.identity.name)) for s in sights]
        if self._told is None:
            return max(shares)
        told, doing = _of(self._told, phase), self.phases.now(sights, now_s=self.now_s())
        # The clock of another phase is set when that phase comes.
        due = max(told, _share(self._told, doing))
        held = all(_within(s, caps_at(due, limits=s.limits, curve=curve_of(s.identity.name))) for s in sights)
        return told if held else max(shares)


def _of(clocks: NodeClocks, phase: Phase) -> float:
    if phase is Phase.TOKEN:
        return clocks.token
    return clocks.prompt if phase in (Phase.PROMPT, Phase.TRAINING) else min(clocks)


def _share(clocks: NodeClocks, doing: Doing) -> float:
    """What holds now: the lower of both where no worker says what it does."""
    return _of(clocks, doing.phase) if doing.source is PhaseSource.WORKERS else min(clocks)


def _brake_of(sight: Sight) -> Caps:
    return brake_caps(limits=sight.limits, curve=curve_of(sight.identity.name))


def _within(sight: Sight, caps: Caps) -> bool:
    """Whether what is enforced is no milder, within what drivers round."""
    for lever, asked, enforced in zip(sight.levers, caps, sight.enforced, strict=True):
        if asked is not None and (enforced is None or enforced > asked + lever.tolerance):
            return False
    return True


def _power_w(sight: Sight) -> float:
    """The board's, and its share of the server beside; of a board that does not answer, the most that it may draw."""
    board_w, curve = sight.reading.power_w, curve_of(sight.identity.name)
    if board_w is None or sight.lost:
        board_w = sight.limits.most_w or (0.0 if curve is None else curve.busy_w().high)
    return board_w if curve is None else board_w + curve.server_w(board_w).mid
