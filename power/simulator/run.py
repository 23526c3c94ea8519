"""From a row, its work and a rule to what came of it.

The engine runs from decision to decision; between, nothing is asked of Python.  What decides, a bare policy with the
power brake, or the guard around one, is a `Control`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from typing import Any, Protocol, cast

import numpy as np

from power.guard import GuardSettings
from power.levers import Clocks, Setting
from power.policies.interface import Policy
from power.readings import Budget, Reading
from power.simulator.board import fresh_board, models_of
from power.simulator.control import Control, Ints, Observed, Orders, PolicyAlone
from power.simulator.faults import install, kill_times
from power.simulator.guarded import Guarded, row_of, settings_of
from power.simulator.layout import WINDOW_S, Board, Floats
from power.simulator.outcome import ClockChange, Outcome, requests_of
from power.simulator.spec import Fault, PlannerKilled, RowSpec
from power.workload import Work


class Kernel(Protocol):
    """`power.simulator.kernel`, which is imported when it is first needed: numba and compiling take seconds."""

    def advance(self, board: Board, until_s: float, calm_w: float, /) -> None: ...


def load_kernel() -> Kernel:
    """Compile, or load what was compiled before."""
    return cast("Kernel", import_module("power.simulator.kernel"))


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

    The same arguments give the same outcome, to the last bit; so does `skip_calm=False`, which asks at every tick.
    """
    board = fresh_board(spec, work, seed=seed)
    row = row_of(board.servers, models_of(spec, work), work.jobs)
    control: Control
    if bare:
        control = PolicyAlone(policy, row=row)
    else:
        settings = guard or settings_of(spec)
        control = Guarded(policy, row=row, settings=settings, read_back_s=spec.read_back_s)
    run = _Run(spec, work, board=board, control=control, faults=tuple(faults))
    run.through(load_kernel(), skip_calm=skip_calm)
    return run.outcome()


@dataclass
class _Planner:
    """Says the budget from time to time, until it is killed."""

    spec: RowSpec
    kills: tuple[PlannerKilled, ...]

    def said(self, now_s: float) -> Budget:
        """The last word that the row has heard."""
        every_s = self.spec.budget_renewed_s
        at_s = now_s // every_s * every_s
        for kill in self.kills:
            if kill.from_s <= at_s < kill.to_s:
                at_s = kill.from_s // every_s * every_s
        return Budget(self.spec.budget_w, at_s + self.spec.budget_valid_s)


@dataclass
class _Times:
    """What was asked for, and when."""

    clocks: list[ClockChange] = field(default_factory=list)
    braked: list[list[float]] = field(default_factory=list)


class _Run:
    """One run, tick by tick."""

    def __init__(self, spec: RowSpec, work: Work, *, board: Board, control: Control, faults: tuple[Fault, ...]) -> None:
        self._spec, self._work, self._control = spec, work, control
        self._board = board
        install(self._board, faults)
        self._planner = _Planner(spec, kill_times(faults))
        self._row = self._board.row[0]
        self._row["command_delay_s"] = control.command_delay_s
        self._setting = Setting()
        self._times = _Times()
        self._held, self._held_at = np.zeros((4, work.servers)), -1
        self._asked = 0

    def through(self, kernel: Kernel, *, skip_calm: bool) -> None:
        """To the end of the work."""
        row, end_s = self._row, len(self._board.readings) * WINDOW_S
        calm_w, until_s = -inf, end_s
        while row["now_s"] < end_s:
            kernel.advance(self._board, until_s, calm_w)
            budget = self._planner.said(float(row["now_s"]))
            self._do(self._control.step(self._observed(budget)))
            self._asked += 1
            if skip_calm:
                calm_w, until_s = self._control.calm()
                until_s = min(until_s, end_s)

    def outcome(self) -> Outcome:
        """What came of it."""
        board, row, work = self._board, self._row, self._work
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
            readings_w=board.readings,
            modelled_w=board.modelled,
            energy_kwh=float(row["energy_j"]) / 3.6e6,
            utilisation=float(row["busy_server_s"]) / max(1.0, serving * end_s),
            requests=requests_of(board.requests, pool=pool, priority=priority[pool]),
            iterations=board.jobs["iterations"].copy(),
            clocks=tuple(self._times.clocks),
            braked_s=tuple((start, end) for start, end in self._times.braked),
            commands=int(row["commands"]),
            ignored=int(row["ignored"]),
            ticks=self._asked,
            events=tuple(self._control.events),
        )

    def _observed(self, budget: Budget) -> Observed:
        row, seen = self._row, int(self._row["seen"])
        reading = Reading((seen + 1) * WINDOW_S, float(row["seen_w"])) if seen >= 0 else None
        now_s = float(row["now_s"])
        return Observed(now_s, reading, self._board.counts.copy(), self._read_back(now_s), budget)

    def _read_back(self, now_s: float) -> Floats | None:
        """What holds on the servers, when it is time to say so; the same array as long as nothing has changed."""
        every_s = self._spec.read_back_s
        if every_s > WINDOW_S and now_s // every_s == (now_s - WINDOW_S) // every_s:
            return None
        if self._held_at != self._row["changes"]:
            servers = self._board.servers
            self._held_at = int(self._row["changes"])
            self._held = np.array([servers[name] for name in ("token_lock", "prompt_lock", "braked", "epoch")], float)
        return self._held

    def _do(self, orders: Orders) -> None:
        """Write orders where the engine finds them."""
        if orders.setting is not self._setting and orders.setting != self._setting:
            self._set(orders.setting)
        row, servers = self._row, self._board.servers
        if len(orders.tell):
            servers["told"][orders.tell] = 1
            row["ordered"] = 1
        for to, whom in ((1, orders.brake), (0, orders.release)):
            if len(whom):
                self._brake(to, whom)

    def _set(self, setting: Setting) -> None:
        row = self._row
        if setting.clocks != self._setting.clocks:
            self._times.clocks.append(ClockChange(float(row["now_s"]), setting.clocks))
            for name, clock in zip(Clocks._fields, setting.clocks, strict=True):
                row[name] = clock
        row["low_hold_w"], row["high_hold_w"] = setting.low_hold_w, setting.high_hold_w
        row["low_together"], row["high_together"] = setting.routing.low_together, setting.routing.high_together
        row["parked_share"] = setting.routing.parked_share
        self._setting = setting

    def _brake(self, to: int, whom: Ints) -> None:
        servers, now_s = self._board.servers, float(self._row["now_s"])
        due_s = servers["brake_due_s"][whom]
        under_way = (servers["brake_to"][whom] == to) & (due_s < inf)  # to say it again delays nothing
        servers["brake_due_s"][whom] = np.where(under_way, due_s, now_s + self._spec.brake_delay_s)
        servers["brake_to"][whom] = to
        self._row["ordered"] = 1
        if to and (not self._times.braked or self._times.braked[-1][1] < inf):
            self._times.braked.append([now_s, inf])
        elif not to and self._times.braked and self._times.braked[-1][1] == inf:
            self._times.braked[-1][1] = now_s
