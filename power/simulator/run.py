"""The simulation of a row: from its specification, work and policy to the outcome.

The engine runs from decision to decision without Python.  The controller, a bare policy with the power brake or the
guard around one, is a `Control`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from power.arrays import Ints
from power.controls import Clocks, Setting
from power.guard import Commands, GuardSettings, Servers, Telemetry
from power.policies.interface import Policy
from power.simulator.control import Control, Guarded, PolicyAlone, row_of, settings_of
from power.simulator.initial_state import initial_state
from power.simulator.outcome import ClockChange, Outcome, requests_of
from power.simulator.spec import (
    BiasedTelemetry,
    DriverReloaded,
    Fault,
    IgnoredActuation,
    LateActuation,
    MissingTelemetry,
    PlannerKilled,
    RowSpec,
    StaleTelemetry,
)
from power.simulator.state import ROW, WINDOW_S, RowState
from power.telemetry import Budget, Reading
from power.workload import Work

_PREFIX = {
    StaleTelemetry: "stale",
    MissingTelemetry: "missing",
    BiasedTelemetry: "meter",
    IgnoredActuation: "ignored",
    LateActuation: "late",
}


def simulate(
    spec: RowSpec,
    work: Work,
    *,
    policy: Policy[Any],
    guard: GuardSettings | None = None,
    bare: bool = False,
    faults: Iterable[Fault] = (),
    seed: int = 0,
    skip_calm: bool = True,
) -> Outcome:
    """Run a policy on a row, inside the guard; `bare`: with the power brake alone, as POLCA describes it.

    The same arguments give the same outcome, to the last bit; so does `skip_calm=False`, which decides at every tick.
    """
    state = initial_state(spec, work, seed=seed)
    row = row_of(state.servers, spec.model, work.jobs)
    control: Control
    if bare:
        control = PolicyAlone(policy, row=row, brake_delay_s=spec.brake_delay_s)
    else:
        settings = guard or settings_of(spec)
        control = Guarded(policy, row=row, settings=settings, read_back_s=spec.read_back_s)
    run = _Run(spec, work, state=state, control=control, faults=tuple(faults))
    run.through(skip_calm=skip_calm)
    return run.outcome()


@dataclass
class _Planner:
    """A planner that renews the budget periodically, until a fault kills it."""

    spec: RowSpec
    kills: tuple[PlannerKilled, ...]
    _until_s: float = field(default=-inf, init=False)
    _budget: Budget = field(init=False)

    def budget_at(self, now_s: float) -> Budget:
        """Return the last budget that the row received; calls must be in order of time."""
        if now_s < self._until_s:
            return self._budget
        every_s = self.spec.budget_renewed_s
        at_s = now_s // every_s * every_s
        self._until_s = at_s + every_s
        for kill in self.kills:
            if kill.from_s <= at_s < kill.to_s:
                at_s = kill.from_s // every_s * every_s
        self._budget = Budget(self.spec.budget_w, at_s + self.spec.budget_valid_s)
        return self._budget


def _column(name: str) -> int:
    """Return the column of a field in the row as an array of 8-byte numbers, which is faster than by name."""
    return (ROW.names or ()).index(name)


_NOW_S, _READING_INDEX, _READING_W, _CHANGES = map(_column, ("now_s", "reading_index", "reading_w", "changes"))


class _Run:
    def __init__(
        self, spec: RowSpec, work: Work, *, state: RowState, control: Control, faults: tuple[Fault, ...]
    ) -> None:
        self._spec, self._work, self._control = spec, work, control
        self._state = state
        install(self._state, faults)
        self._planner = _Planner(spec, tuple(fault for fault in faults if isinstance(fault, PlannerKilled)))
        self._row = self._state.row[0]
        self._row["command_delay_s"] = control.command_delay_s
        self._floats, self._ints = state.row.view(np.float64), state.row.view(np.int64)
        self._counts = state.counts.view()
        self._counts.flags.writeable = False
        self._setting = Setting()
        self._clocks: list[ClockChange] = []
        self._braked: list[list[float]] = []
        self._held, self._held_at = np.zeros((4, work.servers)), -1
        self._ticks = 0

    def through(self, *, skip_calm: bool) -> None:
        from power.simulator import kernel  # noqa: PLC0415 - numba and compiling take seconds

        state, control, end_s = self._state, self._control, len(self._state.readings) * WINDOW_S
        calm_w, until_s, now_s = -inf, end_s, 0.0
        while now_s < end_s:
            kernel.advance(state, until_s, calm_w)
            now_s = self._floats.item(_NOW_S)
            self._do(control.step(self._telemetry(now_s)))
            self._ticks += 1
            if skip_calm:
                calm_w, until_s = control.calm()
                until_s = min(until_s, end_s)

    def outcome(self) -> Outcome:
        state, row, work = self._state, self._row, self._work
        pool = np.sort(work.pool, kind="stable")
        priority = np.array([each.priority for each in work.pools], np.int64)
        serving = sum(each.servers for each in work.pools)
        end_s = float(row["now_s"])
        return Outcome(
            policy=self._control.name,
            budget_w=self._spec.budget_w,
            servers=work.servers,
            duration_s=end_s,
            brakes=self._control.brakes,
            readings_w=state.readings,
            modelled_w=state.modelled,
            energy_kwh=float(row["energy_j"]) / 3.6e6,
            utilisation=float(row["busy_server_s"]) / max(1.0, serving * end_s),
            requests=requests_of(state.requests, pool=pool, priority=priority[pool]),
            iterations=state.jobs["iterations"].copy(),
            clocks=tuple(self._clocks),
            braked_s=tuple((start, end) for start, end in self._braked),
            commands=int(row["commands"]),
            ignored=int(row["ignored"]),
            ticks=self._ticks,
            events=tuple(self._control.events),
        )

    def _telemetry(self, now_s: float) -> Telemetry:
        reading_index = self._ints.item(_READING_INDEX)
        reading = Reading((reading_index + 1) * WINDOW_S, self._floats.item(_READING_W)) if reading_index >= 0 else None
        return Telemetry(now_s, reading, self._counts, self._read_back(now_s), self._planner.budget_at(now_s))

    def _read_back(self, now_s: float) -> Servers | None:
        """Read the servers back when due; return the same array while nothing has changed."""
        every_s = self._spec.read_back_s
        if (
            every_s > WINDOW_S
            and now_s // every_s == (now_s - WINDOW_S) // every_s
            and not self._control.reads_every_step
        ):
            return None
        if self._held_at != self._ints.item(_CHANGES):
            servers = self._state.servers
            self._held_at = self._ints.item(_CHANGES)
            self._held = np.array([servers[name] for name in ("token_lock", "prompt_lock", "braked", "epoch")], float)
        return Servers(np.full(len(self._state.servers), now_s), self._held)

    def _do(self, commands: Commands) -> None:
        if commands.setting is not self._setting and commands.setting != self._setting:
            self._set(commands.setting)
        if commands.is_empty:
            return
        if commands.command.size:
            self._state.servers["commanded"][commands.command] = 1
            self._row["has_commands"] = 1
        for to, servers_ in ((1, commands.brake), (0, commands.release)):
            if servers_.size:
                self._brake(to, servers_)

    def _set(self, setting: Setting) -> None:
        row = self._row
        if setting.clocks != self._setting.clocks:
            self._clocks.append(ClockChange(float(row["now_s"]), setting.clocks))
            for name, clock in zip(Clocks._fields, setting.clocks, strict=True):
                row[name] = clock
        row["low_limit_w"], row["high_limit_w"] = setting.low_limit_w, setting.high_limit_w
        row["low_together"], row["high_together"] = setting.routing.low_together, setting.routing.high_together
        row["parked_share"] = setting.routing.parked_share
        self._setting = setting

    def _brake(self, to: int, servers_: Ints) -> None:
        servers, now_s = self._state.servers, float(self._row["now_s"])
        due_s = servers["brake_due_s"][servers_]
        under_way = (servers["brake_to"][servers_] == to) & (due_s < inf)  # repeating a command does not delay it
        servers["brake_due_s"][servers_] = np.where(under_way, due_s, now_s + self._spec.brake_delay_s)
        servers["brake_to"][servers_] = to
        self._row["has_commands"] = 1
        if to and (not self._braked or self._braked[-1][1] < inf):
            self._braked.append([now_s, inf])
        elif not to and self._braked and self._braked[-1][1] == inf:
            self._braked[-1][1] = now_s


def install(state: RowState, faults: Sequence[Fault]) -> None:
    """Install the faults in the engine's state, at most one of each kind."""
    row = state.row[0]
    for fault in faults:
        if isinstance(fault, PlannerKilled):
            continue
        if isinstance(fault, DriverReloaded):
            row["reloaded_s"], row["reloaded_share"] = fault.at_s, fault.share
            continue
        prefix = _PREFIX[type(fault)]
        row[f"{prefix}_from_s"], row[f"{prefix}_to_s"] = fault.from_s, fault.to_s
        if isinstance(fault, MissingTelemetry | IgnoredActuation | LateActuation):
            row[f"{prefix}_share"] = fault.share
        if isinstance(fault, LateActuation):
            row["late_s"] = fault.late_s
        if isinstance(fault, BiasedTelemetry):
            row["meter_factor"] = fault.factor
