"""A fleet of emulated engines in one process: replicas of several options, each at a port of its own.

The count of an option changes while requests run.  A new replica listens after its warm-up; a removed one gets no new
requests, finishes those it has, and then closes its port.  `Dispatcher` is the fleet's own balancer.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any

from pydantic import Field

from deploy.common.clock import Clock
from deploy.emulator.engine import Token
from deploy.emulator.engine_http import AnswerApp, EngineSpec, HttpEngine, Listener
from deploy.emulator.fleet_account import Account, Accounted, Objectives
from deploy.emulator.metric_pages import RequestRecord
from deploy.emulator.openai_worker import TokenSource
from deploy.emulator.worker import Name, UnavailableError
from fleet.documents import Frozen
from fleet.errors import UnknownNameError
from planner.performance.config import Role

MAX_REPLICAS = 200
TICK_S = 0.01  # of this process: longer than a lone worker's, so that many replicas share a processor
DRAIN_POLL_S = 0.02


class OptionSpec(EngineSpec):
    """Replicas of one kind."""

    replicas: int = Field(default=1, ge=0, le=MAX_REPLICAS, description="At the start.")
    warm_up_s: float = Field(default=0.0, ge=0, le=86_400, description="Model seconds until a replica is ready.")
    weight: float = Field(default=1.0, gt=0, le=1e6, description="Requests in flight, relative to other options.")


class FleetSpec(Frozen):
    options: dict[Name, OptionSpec] = Field(min_length=1, max_length=100)
    time_scale: float = Field(default=1.0, gt=0, le=10_000, description="Model seconds per second, of all options.")
    objectives: Objectives = Objectives()


class Scale(Frozen):
    """A wanted state of an option."""

    replicas: int = Field(ge=0, le=MAX_REPLICAS)
    weight: float | None = Field(default=None, gt=0, le=1e6, description="Absent: unchanged.")
    engine_version: str | None = Field(
        default=None, description="Of processes that start from now on, so that their metrics have other names."
    )


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(slots=True, kw_only=True)
class Replica:
    name: str
    option: str
    state: ReplicaState
    engine: HttpEngine
    listener: Listener
    since_s: float  # model seconds
    sent: int = 0  # by the dispatcher
    task: "asyncio.Task[None] | None" = None  # that warms it up or drains it


@dataclass(slots=True, kw_only=True)
class Option:
    name: str
    spec: OptionSpec
    weight: float
    replicas: list[Replica] = field(default_factory=list)
    stopped_replica_s: float = 0.0
    ordinals: "count[int]" = field(default_factory=count)

    @property
    def wanted(self) -> int:
        return sum(replica.state is not ReplicaState.DRAINING for replica in self.replicas)

    @property
    def ready(self) -> int:
        return sum(replica.state is ReplicaState.READY for replica in self.replicas)


@dataclass(slots=True)
class Fleet:
    """The replicas.  It runs in the caller's event loop; `close` ends it."""

    spec: FleetSpec
    clock: Clock = field(default_factory=Clock)
    account: Account = field(init=False)
    options: dict[str, Option] = field(init=False)
    _began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self.clock.steady_s()
        self.account = Account(self.spec.objectives)
        scale = {"time_scale": self.spec.time_scale}
        self.options = {
            name: Option(name=name, spec=option.model_copy(update=scale), weight=option.weight)
            for name, option in self.spec.options.items()
        }

    @property
    def now_s(self) -> float:
        """Model seconds since the start."""
        return (self.clock.steady_s() - self._began_s) * self.spec.time_scale

    def open(self) -> None:
        """Start the first replicas, which are ready at once."""
        for option in self.options.values():
            for _ in range(option.spec.replicas):
                self._ready(self._add(option))

    async def close(self) -> None:
        """Stop every replica; requests in flight fail."""
        await asyncio.gather(*(self._stop(replica) for replica in list(self.replicas())))

    def replicas(self) -> Iterator[Replica]:
        for option in self.options.values():
            yield from option.replicas

    def replica_s(self, option: Option) -> float:
        """Return the model seconds of all replicas, from the start of the warm-up to the end of the drain."""
        return option.stopped_replica_s + sum(self.now_s - replica.since_s for replica in option.replicas)

    def scale(self, name: str, scale: Scale) -> None:
        """Set the count of an option.  Raise ValidationError for an unknown version.

        Starting replicas are removed first, then those with the fewest requests, the newest first.
        """
        option = self._option(name)
        if scale.engine_version is not None:
            changed = option.spec.model_dump() | {"engine_version": scale.engine_version}
            option.spec = OptionSpec.model_validate(changed)
        option.weight = option.weight if scale.weight is None else scale.weight
        for _ in range(scale.replicas - option.wanted):
            replica = self._add(option)
            replica.task = asyncio.create_task(self._warm_up(replica))
        kept = [replica for replica in reversed(option.replicas) if replica.state is not ReplicaState.DRAINING]
        kept.sort(key=lambda replica: (replica.state is ReplicaState.READY, replica.engine.loop.in_flight))
        for replica in kept[: max(0, len(kept) - scale.replicas)]:
            self._replace_task(replica, self._drain(replica))
            replica.state = ReplicaState.DRAINING

    async def restart(self, name: str) -> None:
        """Kill a replica's process and start it again at its port: requests in flight fail, and counters start at 0."""
        replica = next((each for each in self.replicas() if each.name == name), None)
        if replica is None:
            raise UnknownNameError(kind="replica", name=name, known=[each.name for each in self.replicas()])
        if replica.state is not ReplicaState.READY:
            raise UnavailableError(f"{name} is {replica.state}; only a ready replica restarts")
        replica.state = ReplicaState.STARTING
        await replica.engine.loop.stop()
        await replica.listener.close()
        option = self._option(replica.option)
        replica.engine, replica.listener = self._process(option, name, port=replica.listener.port)
        replica.task = asyncio.create_task(self._warm_up(replica))

    def _option(self, name: str) -> Option:
        try:
            return self.options[name]
        except KeyError:
            raise UnknownNameError(kind="option", name=name, known=list(self.options)) from None

    def _add(self, option: Option) -> Replica:
        name = f"{option.name}-{next(option.ordinals)}"
        engine, listener = self._process(option, name, port=0)
        replica = Replica(
            name=name,
            option=option.name,
            state=ReplicaState.STARTING,
            engine=engine,
            listener=listener,
            since_s=self.now_s,
        )
        option.replicas.append(replica)
        return replica

    def _process(self, option: Option, name: str, *, port: int) -> tuple[HttpEngine, Listener]:
        engine = HttpEngine(
            spec=option.spec,
            name=name,
            clock=self.clock,
            tick_s=TICK_S,
            through=lambda source: Accounted(source, self.account),
        )
        return engine, Listener(AnswerApp(engine.answer), port)

    def _ready(self, replica: Replica) -> None:
        replica.listener.open()
        replica.state = ReplicaState.READY

    async def _warm_up(self, replica: Replica) -> None:
        await self.clock.sleep(self._option(replica.option).spec.warm_up_s / self.spec.time_scale)
        self._ready(replica)
        replica.task = None

    async def _drain(self, replica: Replica) -> None:
        while replica.engine.loop.in_flight:
            await self.clock.sleep(DRAIN_POLL_S)
        replica.task = None
        await self._stop(replica)

    async def _stop(self, replica: Replica) -> None:
        self._replace_task(replica, None)
        option = self._option(replica.option)
        option.replicas.remove(replica)
        option.stopped_replica_s += self.now_s - replica.since_s
        await replica.engine.loop.stop()
        await replica.listener.close()

    def _replace_task(self, replica: Replica, work: Coroutine[Any, Any, None] | None) -> None:
        if replica.task is not None:
            replica.task.cancel()
        replica.task = None if work is None else asyncio.create_task(work)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Sends each request to the ready replica with the fewest requests in flight for its option's weight.

    Replicas whose cache is too small for the request are left out, where others are ready.  A prefill replica only
    reads the prompt; the response then comes from a decode replica.
    """

    fleet: Fleet

    async def complete(self, *, prompt_tokens: int, output_tokens: int) -> RequestRecord:
        source, before_s = await self._prefilled(prompt_tokens, output_tokens)
        done = await source.complete(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        done.arrived_s -= before_s
        return done

    async def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[tuple[Token, float], None]:
        source, before_s = await self._prefilled(prompt_tokens, output_tokens)
        async with aclosing(source.tokens(prompt_tokens=prompt_tokens, output_tokens=output_tokens)) as tokens:
            async for token, taken_s in tokens:
                yield token, before_s + taken_s

    async def _prefilled(self, prompt_tokens: int, output_tokens: int) -> tuple[TokenSource, float]:
        """Return the worker that responds, and the model seconds that a prefill replica took before."""
        needed = prompt_tokens + output_tokens - 1
        first = self._choose({"both", "prefill"}, needed)
        if first.engine.spec.role == "both":
            return first.engine.loop, 0.0
        done = await first.engine.loop.complete(prompt_tokens=prompt_tokens, output_tokens=1)
        return self._choose({"decode"}, needed).engine.loop, done.e2e_s

    def _choose(self, roles: set[Role], needed_tokens: int) -> Replica:
        ready = [
            replica
            for replica in self.fleet.replicas()
            if replica.state is ReplicaState.READY and replica.engine.spec.role in roles
        ]
        if not ready:
            raise UnavailableError(f"no replica with the role {' or '.join(sorted(roles))} is ready")
        large = [replica for replica in ready if replica.engine.loop.tuned.costs.cache_tokens >= needed_tokens]
        chosen = min(large or ready, key=self._load)
        chosen.sent += 1
        return chosen

    def _load(self, replica: Replica) -> tuple[float, float]:
        weight = self.fleet.options[replica.option].weight
        return (replica.engine.loop.in_flight + 1) / weight, replica.sent / weight
