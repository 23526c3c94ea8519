"""An engine as its keeper sees it: what its maps must look like, and how it is given another.

`FileThenRestart` is for engines that read their file at their start (SGLang, TensorRT-LLM, vllm-ascend); `LiveFile` for
vLLM with our plug-in, which reads the file again before each rearrangement and goes on serving.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from fleetwright.engines.placement_file import MapShape, parse, publish
from fleetwright.expert_rollout.messages import EngineShape

START_S = 1800.0  # weights of a large model load for many minutes


class MapEngine(Protocol):
    """One replica's engine.  What `check` and `load` raise is told as the reason of a refusal."""

    live: bool  # takes another map while it serves
    shape: EngineShape

    def check(self, text: str) -> None:
        """Whether it could load this file; asked before anything is stopped."""

    async def load(self, text: str | None) -> None:
        """Bring the file in, None being the engine's own placement; returns when the engine serves with it."""


class LiveFile:
    """The file that vLLM's plug-in reads: replaced whole, and in force from the next rearrangement."""

    live = True

    def __init__(self, path: Path, *, shape: EngineShape) -> None:
        self._path = path
        self.shape = shape

    def check(self, text: str) -> None:
        """By the very rules of the plug-in."""
        check_map_file(text, shape=self.shape)

    async def load(self, text: str | None) -> None:
        """At once; where the file is gone, vLLM balances by itself."""
        await asyncio.to_thread(put_file, text, self._path)


class FileThenRestart:
    """An engine that is stopped and started again with the file."""

    live = False

    def __init__(
        self,
        path: Path,
        *,
        shape: EngineShape,
        restart: Callable[[], Awaitable[None]],
        healthy: Callable[[], Awaitable[bool]],
        check: Callable[[str], None] | None = None,
        start_s: float = START_S,
        steady_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._path = path
        self._restart = restart
        self._healthy = healthy
        self._check = check
        self._start_s = start_s
        self._steady_s = steady_s
        self._sleep = sleep
        self.shape = shape

    def check(self, text: str) -> None:
        """As the caller says; for an engine without a check of its own, only when it starts."""
        if self._check is not None:
            self._check(text)

    async def load(self, text: str | None) -> None:
        """Write, restart, and wait until it is healthy; TimeoutError when it never is."""
        await asyncio.to_thread(put_file, text, self._path)
        await self._restart()
        until_s = self._steady_s() + self._start_s
        while not await self._healthy():
            if self._steady_s() >= until_s:
                raise TimeoutError(f"the engine was not healthy within {self._start_s:g} s of its start")
            await self._sleep(1.0)


def put_file(text: str | None, path: Path) -> None:
    """At once and for good, or away."""
    if text is None:
        path.unlink(missing_ok=True)
    else:
        publish(text, path)


def check_map_file(text: str, *, shape: EngineShape) -> None:
    """A vLLM file against what the engine says of itself, if it does; UnusableError says what does not fit."""
    if shape.layers is None or shape.experts is None or shape.slots is None or shape.gpus is None:
        return
    parse(text.encode(), shape=MapShape(shape.layers, shape.experts, shape.slots, shape.gpus))
