"""Simulated GPUs of a catalogue type that draw the power of their curve.

They take power limits and locked clocks, throttle under either, and fail as drivers do: ignore writes, refuse them,
lose a board, lose every cap at a reload.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from deploy.node_agent.gpu.errors import GpuLostError, NoPermissionError, OutOfRangeError
from deploy.node_agent.gpu.interface import Caps, GpuIdentity, GpuLimits, GpuReading
from fleet.gpus import GpuSpec
from power.controls import FULL_CLOCK
from power.curves import PowerCurve, power_curve

CLOCK_STEP_MHZ = 15
MIN_SHARE = 0.3  # of the rating, without a minimum in the catalogue
MIN_CLOCK_SHARE = 0.15  # of the full clock, without a minimum in the catalogue
FULL_MHZ = 1980.0  # without a full clock in the catalogue
MEMORY_CLOCK_MHZ = 2619  # of an H100 SXM; no simulated load changes it


@dataclass(slots=True)
class Board:
    """One GPU; tests set its public fields."""

    limit_w: float
    lock_mhz: int | None = None
    load: float = 1.0
    lost: bool = False
    energy_j: float = 0.0
    read_s: float | None = None


@dataclass(slots=True)
class SimulatedDriver:
    spec: GpuSpec
    count: int
    now_s: Callable[[], float]
    rng: np.random.Generator
    name: str = "sim"
    load: float = 1.0  # of every board at the start
    ignored_share: float = 0.0  # of writes: accepted and never executed
    refused_share: float = 0.0
    period_s: float = 0.25
    driver: str = "simulated"
    reports_locked_clock: bool = True
    epoch: int = 1
    boards: dict[str, Board] = field(init=False)
    _curve: PowerCurve = field(init=False)

    def __post_init__(self) -> None:
        self._curve = power_curve(self.spec)
        uuids = (f"GPU-{self.name}-{at}" for at in range(self.count))
        self.boards = {uuid: Board(limit_w=self.spec.rated_w, load=self.load) for uuid in uuids}

    def identities(self) -> Sequence[GpuIdentity]:
        return [GpuIdentity(uuid=uuid, name=self.spec.name) for uuid in self.boards]

    def limits(self, uuid: str) -> GpuLimits:
        """Return the catalogue's limits, or defaults."""
        self._board(uuid)
        spec = self.spec
        full, lowest = int(self._full_mhz), int(spec.clock_min_mhz or MIN_CLOCK_SHARE * self._full_mhz)
        clocks = range(full, lowest - 1, -CLOCK_STEP_MHZ)
        min_w = spec.cap_min_w or MIN_SHARE * spec.rated_w
        return GpuLimits(
            min_w=min_w, max_w=spec.cap_max_w or spec.rated_w, default_w=spec.rated_w, clocks_mhz=tuple(clocks)
        )

    def read(self, uuid: str) -> GpuReading:
        """Return what the load draws under its caps."""
        board = self._board(uuid)
        clock, now_s = self._clock(board), self.now_s()
        power_w = min(board.limit_w, self._curve.power_w(board.load, clock).mid)
        board.energy_j += power_w * (now_s - (now_s if board.read_s is None else board.read_s))
        board.read_s = now_s
        return GpuReading(
            power_w=power_w,
            energy_j=board.energy_j,
            temperature_c=30.0 + 40.0 * power_w / self.spec.rated_w,
            sm_clock_mhz=round(clock * self._full_mhz) if board.load else self.limits(uuid).brake_clock_mhz,
            memory_clock_mhz=MEMORY_CLOCK_MHZ,
            utilization=board.load,
            ecc_corrected=0,
            ecc_uncorrected=0,
            slowed_by=("power-cap",) if clock < self._locked(board) else () if board.load else ("idle",),
        )

    def enforced(self, uuid: str) -> Caps:
        """Return both caps: this driver reports both."""
        board = self._board(uuid)
        return Caps(board.limit_w, board.lock_mhz)

    def configured(self, uuid: str) -> Caps:
        return self.enforced(uuid)

    def set_power_limit(self, uuid: str, watts: float | None) -> None:
        limits, board = self.limits(uuid), self._board(uuid)
        wanted = self.spec.rated_w if watts is None else watts
        if wanted != limits.watts_within(wanted):
            raise OutOfRangeError(f"{uuid}: {wanted:g} W is outside of {limits.min_w:g} to {limits.max_w:g}")
        if self._obeys():
            board.limit_w = wanted

    def lock_clock(self, uuid: str, mhz: int | None) -> None:
        board = self._board(uuid)
        if mhz is not None and mhz not in self.limits(uuid).clocks_mhz:
            raise OutOfRangeError(f"{uuid}: {mhz} MHz is no clock of it")
        if self._obeys():
            board.lock_mhz = mhz

    def close(self) -> None:
        """Do nothing."""

    def reload(self) -> None:
        """Forget all settings, as a reload of the driver does."""
        self.epoch += 1
        for uuid, board in self.boards.items():
            self.boards[uuid] = Board(limit_w=self.spec.rated_w, load=board.load, lost=board.lost)

    @property
    def _full_mhz(self) -> float:
        return self.spec.clock_max_mhz or FULL_MHZ

    def _board(self, uuid: str) -> Board:
        board = self.boards.get(uuid)
        if board is None or board.lost:
            raise GpuLostError(f"{uuid}: has fallen off the bus")
        return board

    def _obeys(self) -> bool:
        if self._drawn(self.refused_share):
            raise NoPermissionError("the simulated driver refuses every write")
        return not self._drawn(self.ignored_share)

    def _drawn(self, share: float) -> bool:
        return bool(share and self.rng.random() < share)

    def _locked(self, board: Board) -> float:
        return FULL_CLOCK if board.lock_mhz is None else board.lock_mhz / self._full_mhz

    def _clock(self, board: Board) -> float:
        """Return the lower of the lock and the clock that the limit leaves its load."""
        locked = self._locked(board)
        if self._curve.power_w(board.load, locked).mid <= board.limit_w:
            return locked
        low, high = 0.05, locked
        for _ in range(30):
            middle = (low + high) / 2
            fits = self._curve.power_w(board.load, middle).mid <= board.limit_w
            low, high = (middle, high) if fits else (low, middle)
        return low
