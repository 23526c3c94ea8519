"""The engine behind a replica agent: the layout of its maps, and how it loads another map.

`FileThenRestart` is for engines that read their file at start.  `LiveFile` is for vLLM with the plug-in, which reads
the file again before each rearrangement and keeps serving.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from fleetwright.engines.placement_file import MapShape, parse, publish
from fleetwright.expert_rollout.messages import EngineShape

START_S = 1800.0  # loading the weights of a large model takes many minutes


class MapEngine(Protocol):
    """One replica's engine.  An exception of `check` or `load` becomes the reason of a refusal."""

    live: bool  # whether it takes another map while it serves
    shape: EngineShape

    def check(self, text: str) -> None:
        """Raise if the engine cannot load this file; called before anything stops."""

    async def load(self, text: str | None) -> None:
        """Load the file, None for the engine's own placement; return when the engine serves with it."""


class LiveFile:
    """The file of vLLM's plug-in: replaced atomically, in effect from the next rearrangement."""

    live = True

    def __init__(self, path: Path, *, shape: EngineShape) -> None:
        self._path = path
        self.shape = shape

    def check(self, text: str) -> None:
        check_map_file(text, shape=self.shape)

    async def load(self, text: str | None) -> None:
        await asyncio.to_thread(put_file, text, self._path)


class FileThenRestart:
    """An engine that restarts with the file."""

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
        """Call the given check; an engine without one checks at start only."""
        if self._check is not None:
            self._check(text)

    async def load(self, text: str | None) -> None:
        """Write the file, restart, and wait until the engine is healthy; TimeoutError if it never is."""
        await asyncio.to_thread(put_file, text, self._path)
        await self._restart()
        until_s = self._steady_s() + self._start_s
        while not await self._healthy():
            if self._steady_s() >= until_s:
                raise TimeoutError(f"the engine was not healthy within {self._start_s:g} s of its start")
            await self._sleep(1.0)


def put_file(text: str | None, path: Path) -> None:
    if text is None:
        path.unlink(missing_ok=True)
    else:
        publish(text, path)


def check_map_file(text: str, *, shape: EngineShape) -> None:
    """Check a vLLM file against the engine's declared layout; UnusableError names the difference."""
    if shape.layers is None or shape.experts is None or shape.slots is None or shape.gpus is None:
        return
    parse(text.encode(), shape=MapShape(shape.layers, shape.experts, shape.slots, shape.gpus))
