"""An engine in the scaled time of this process, which passes tokens to each caller."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from itertools import count
from math import inf

from deploy.common.clock import Clock
from deploy.emulator.engine import Engine, Token
from deploy.emulator.worker import Tuning, WorkerSpec, tuning
from deploy.emulator.worker import engine as idle_engine

TICK_S = 0.002  # of this process: iterations that end within one are delivered together


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The state of a worker, in the model's power and time."""

    clock: float
    power_w: float  # mean since the last report
    energy_j: float
    at_s: float
    in_flight: int
    tokens_written: int


@dataclass(slots=True, kw_only=True)
class WorkerLoop:
    """Runs one worker.  It starts with the first request, in the caller's event loop."""

    spec: WorkerSpec
    clock: Clock = field(default_factory=Clock)
    tuned: Tuning = field(init=False)
    _engine: Engine = field(init=False)
    _began_s: float = field(init=False)
    _keys: "count[int]" = field(default_factory=count)
    _callers: dict[str, "asyncio.Queue[Token]"] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _running: "asyncio.Task[None] | None" = None
    _reported: tuple[float, float] = (0.0, 0.0)  # time and energy of the last report

    def __post_init__(self) -> None:
        self.tuned = tuning(self.spec)
        self._engine = idle_engine(self.spec)
        self._began_s = self.clock.steady_s()

    @property
    def now_s(self) -> float:
        """Return the model time since the start of the worker."""
        return (self.clock.steady_s() - self._began_s) * self.spec.time_scale

    def set_clock(self, clock: float) -> None:
        self._deliver()
        self.tuned = tuning(self.spec, clock=clock)
        self._engine.retune(self.tuned.costs, self.tuned.watts)

    async def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[tuple[Token, float], None]:
        """Yield each token with its time since arrival; a caller that stops early withdraws its request."""
        self._deliver()
        key, asked_s = str(next(self._keys)), self._engine.now_s
        self._engine.submit(key, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        arriving = self._callers[key] = asyncio.Queue()
        self._wake()
        try:
            while True:
                token = await arriving.get()
                yield token, token.at_s - asked_s
                if token.last:
                    return
        finally:
            del self._callers[key]
            self._engine.cancel(key)

    def report(self) -> Report:
        self._deliver()
        now_s, energy_j = self._engine.now_s, self._engine.energy_j
        then_s, then_j = self._reported
        mean_w = (energy_j - then_j) / (now_s - then_s) if now_s > then_s else self._engine.power_w
        self._reported = (now_s, energy_j)
        return Report(
            clock=self.tuned.clock,
            power_w=mean_w,
            energy_j=energy_j,
            at_s=now_s,
            in_flight=self._engine.in_flight,
            tokens_written=self._engine.tokens_written,
        )

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    def _wake(self) -> None:
        self._woken.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            wait_s = (self._engine.next_s - self.now_s) / self.spec.time_scale
            if wait_s == inf:
                await self._woken.wait()
            else:
                await self.clock.sleep(max(TICK_S, wait_s))
            self._deliver()

    def _deliver(self) -> None:
        for token in self._engine.advance(max(self._engine.now_s, self.now_s)):
            if (caller := self._callers.get(token.key)) is not None:
                caller.put_nowait(token)
