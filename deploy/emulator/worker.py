"""One emulated worker: a model on GPUs of one type, with its costs and power at a clock level.

Costs are the planner's (`planner.performance.step_costs`) for a replica at that clock; the host's work per request and
the cache do not follow it.  Power follows the power curve: an iteration that processes a prompt is full load, one that
only decodes has the load of its share of the highest token rate.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Annotated, Self

from pydantic import Field, model_validator

from deploy.common.clock import Clock
from deploy.emulator.engine import IDLE, Engine, Token, Work
from deploy.emulator.metric_pages import EngineState, MetricPage, RequestRecord
from fleet.documents import Frozen, RuleError
from fleet.errors import FleetwrightError, UnknownNameError
from fleet.gpus import GpuSpec, builtin_gpus
from fleet.models import ModelArchitecture, builtin_models
from planner.performance import ReplicaConfig, StepCosts, step_costs, step_s
from planner.performance.config import Role
from planner.performance.kv_memory import misfits
from power.controls import FULL_CLOCK
from power.curves import PowerCurve, power_curve

MIN_CLOCK = 0.1  # far below the lowest clock of any GPU
Name = Annotated[str, Field(min_length=1, max_length=100)]
TICK_S = 0.002  # of this process: iterations that end within one are delivered together


class UnavailableError(FleetwrightError):
    """No worker completes the response: none is ready, or the worker stopped before the last token."""


class WorkerSpec(Frozen):
    """One replica of a deployment."""

    gpu: Name = Field(description="Name in the catalogue.")
    model: Name = Field(default="Llama-3.1-8B", description="Name in the catalogue.")
    gpus: int = Field(default=1, ge=1, le=64, description="Per replica, with tensor parallelism.")
    input_tokens: int = Field(default=1000, ge=1, le=1_000_000, description="Typical, to linearise the costs at.")
    output_tokens: int = Field(default=250, ge=1, le=1_000_000)
    max_sequences: int | None = Field(
        default=None, ge=1, le=100_000, description="Fewer at once than the model allows."
    )
    role: Role = Field(default="both", description="A decode worker finds the KV cache of every prompt loaded.")
    prefix_hit_share: float = Field(default=0.0, ge=0, le=1, description="Of each prompt, found in the prefix cache.")
    time_scale: float = Field(default=1.0, gt=0, le=10_000, description="Model seconds per second.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        try:
            config = self.config()
        except UnknownNameError as error:
            raise ValueError(str(error)) from error
        (reason,) = misfits(config, [self.input_tokens + self.output_tokens])
        if reason is not None:
            raise RuleError([(("gpus",), f"{self.model} on {self.gpus} {self.gpu}: {reason}")])
        return self

    def config(self, clock: float = FULL_CLOCK) -> ReplicaConfig:
        return ReplicaConfig(model=self._model, gpu=self.board, tensor_parallel=self.gpus, clock=clock, role=self.role)

    def loaded_tokens(self, prompt_tokens: int) -> int:
        """Return how many tokens of a prompt need no arithmetic; the engine computes at least the last one."""
        share = 1.0 if self.role == "decode" else self.prefix_hit_share
        return min(int(share * prompt_tokens), prompt_tokens - 1)

    @property
    def board(self) -> GpuSpec:
        return builtin_gpus().get(self.gpu)

    @property
    def _model(self) -> ModelArchitecture:
        return builtin_models().get(self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    clock: float
    costs: StepCosts
    watts: Callable[[Work], float]


def tuning(spec: WorkerSpec, *, clock: float = FULL_CLOCK) -> Tuning:
    full, costs = _costs(spec, FULL_CLOCK), _costs(spec, clock)
    costs = replace(costs, request_s=full.request_s, cache_tokens=full.cache_tokens)
    curve, context = power_curve(spec.board), spec.input_tokens + spec.output_tokens // 2
    return Tuning(clock=clock, costs=costs, watts=_watts(curve, costs, gpus=spec.gpus, context=context, clock=clock))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    clock: float
    power_w: float  # mean since the last report
    energy_j: float
    at_s: float
    in_flight: int
    tokens_written: int


@dataclass(slots=True, kw_only=True)
class _Caller:
    record: RequestRecord
    deliver: Callable[[Token], None]
    fail: Callable[[UnavailableError], None]


@dataclass(slots=True, kw_only=True)
class WorkerLoop:
    """Runs one worker.  It starts with the first request, in the caller's event loop."""

    spec: WorkerSpec
    clock: Clock = field(default_factory=Clock)
    tick_s: float = TICK_S
    pages: Sequence[MetricPage] = ()  # that count the tokens and requests of this worker
    tuned: Tuning = field(init=False)
    _engine: Engine = field(init=False)
    _began_s: float = field(init=False)
    _keys: "count[int]" = field(default_factory=count)
    _callers: dict[str, _Caller] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _running: "asyncio.Task[None] | None" = None
    _reported: tuple[float, float] = (0.0, 0.0)  # time and energy of the last report

    def __post_init__(self) -> None:
        self.tuned = tuning(self.spec)
        self._engine = Engine(costs=self.tuned.costs, watts=self.tuned.watts, on_iteration=self._iterated)
        self._began_s = self.clock.steady_s()

    @property
    def now_s(self) -> float:
        return (self.clock.steady_s() - self._began_s) * self.spec.time_scale

    @property
    def in_flight(self) -> int:
        return len(self._callers)

    def set_clock(self, clock: float) -> None:
        self._deliver()
        self.tuned = tuning(self.spec, clock=clock)
        self._engine.retune(self.tuned.costs, self.tuned.watts)

    async def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[tuple[Token, float], None]:
        """Yield each token with its time since arrival; a caller that stops early withdraws its request."""
        arriving: asyncio.Queue[Token | UnavailableError] = asyncio.Queue()
        record = self._record(prompt_tokens, output_tokens, streamed=True)
        key = self._submit(_Caller(record=record, deliver=arriving.put_nowait, fail=arriving.put_nowait))
        try:
            while True:
                token = await arriving.get()
                if isinstance(token, UnavailableError):
                    raise token
                yield token, token.at_s - record.arrived_s
                if token.last:
                    return
        finally:
            self._withdraw(key)

    async def complete(self, *, prompt_tokens: int, output_tokens: int) -> RequestRecord:
        """Return the record of a request after its last token; a cancelled caller withdraws it."""
        ended: asyncio.Future[Token] = asyncio.get_running_loop().create_future()

        def deliver(token: Token) -> None:
            if token.last and not ended.done():
                ended.set_result(token)

        def fail(error: UnavailableError) -> None:
            if not ended.done():
                ended.set_exception(error)

        record = self._record(prompt_tokens, output_tokens, streamed=False)
        key = self._submit(_Caller(record=record, deliver=deliver, fail=fail))
        try:
            await ended
        finally:
            self._withdraw(key)
        return record

    def state(self) -> EngineState:
        """Return the engine's state now, after every token that is due."""
        self._deliver()
        engine = self._engine
        return EngineState(
            now_s=engine.now_s,
            running=engine.in_flight - engine.waiting,
            waiting=engine.waiting,
            cached_tokens=engine.cached_tokens,
            cache_tokens=engine.costs.cache_tokens,
            preemptions=engine.preemptions,
        )

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
        """Stop; requests in flight raise UnavailableError."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        for caller in self._callers.values():
            caller.fail(UnavailableError("the worker stopped before the response was complete"))

    def _record(self, prompt_tokens: int, output_tokens: int, *, streamed: bool) -> RequestRecord:
        self._deliver()
        return RequestRecord(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            arrived_s=self._engine.now_s,
            loaded_tokens=self.spec.loaded_tokens(prompt_tokens),
            streamed=streamed,
        )

    def _submit(self, caller: _Caller) -> str:
        key, record = str(next(self._keys)), caller.record
        self._engine.submit(
            key,
            prompt_tokens=record.prompt_tokens,
            output_tokens=record.output_tokens,
            loaded_tokens=record.loaded_tokens,
        )
        self._callers[key] = caller
        self._wake()
        return key

    def _withdraw(self, key: str) -> None:
        """Remove a request that has not all its tokens."""
        if (caller := self._callers.pop(key, None)) is not None:
            self._engine.cancel(key)
            for page in self.pages:
                page.ended(caller.record, finished=False)

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
                await self.clock.sleep(max(self.tick_s, wait_s))
            self._deliver()

    def _deliver(self) -> None:
        for token in self._engine.advance(max(self._engine.now_s, self.now_s)):
            caller = self._callers[token.key]
            record = caller.record
            for page in self.pages:
                page.token(record, token)
            if token.index == 0:
                record.started_s, record.first_token_s = token.started_s, token.at_s
            record.last_token_s, record.generated = token.at_s, token.index + 1
            if token.last:
                del self._callers[token.key]
                for page in self.pages:
                    page.ended(record, finished=True)
            caller.deliver(token)

    def _iterated(self, work: Work) -> None:
        for page in self.pages:
            page.iteration(work)


def _costs(spec: WorkerSpec, clock: float) -> StepCosts:
    costs = step_costs(spec.config(clock), input_tokens=spec.input_tokens, output_tokens=spec.output_tokens)
    most = costs.max_sequences if spec.max_sequences is None else min(costs.max_sequences, spec.max_sequences)
    return replace(costs, max_sequences=most)


def _watts(curve: PowerCurve, costs: StepCosts, *, gpus: int, context: int, clock: float) -> Callable[[Work], float]:
    places = max(1, min(costs.max_sequences, costs.cache_tokens // context))

    def rate(decoding: int) -> float:
        return decoding / step_s(costs, decoding=float(decoding), cached_tokens=float(decoding * context))

    highest = rate(places)

    def watts(work: Work) -> float:
        load = 1.0 if work.prompt_tokens else 0.0 if work == IDLE else min(1.0, rate(work.decoding) / highest)
        return gpus * curve.power_w(load, clock).mid

    return watts
