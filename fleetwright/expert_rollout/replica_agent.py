"""The replica's side of an expert rollout: it receives commands, changes the map in its turn, and reports its status.

docs/explanation/runtime/expert-rollout.md draws its states.  The agent checks a command on receipt, before anything
stops.  A bad command never raises: Serve would count the replica as unhealthy.  Times and the engine are arguments.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from fleetwright.expert_rollout.engines import MapEngine
from fleetwright.expert_rollout.messages import (
    KEY,
    DamagedError,
    MapFile,
    RolloutCommand,
    digest,
    read_command,
    stamp_of,
)

DRAIN_S = 600.0  # the wait for requests in progress, which are never cut off
_LOG = logging.getLogger("fleetwright.expert_maps")


class BrokenError(RuntimeError):
    """Neither the new map nor the previous one could be loaded."""


class ReplicaAgent:
    """Keeps one replica's engine at the commanded map."""

    def __init__(self, engine: MapEngine, *, replica_id: str, drain_s: float = DRAIN_S) -> None:
        self.replica_id = replica_id
        self._engine = engine
        self._drain_s = drain_s
        self._command: RolloutCommand | None = None
        self._stamp = stamp_of(None)  # Serve does not call `reconfigure` where there is no user_config
        self._number = 0
        self._loaded: MapFile | None = None
        self._refusals: dict[str, str] = {}
        self._tried: tuple[str | None, int] | None = None  # the map and attempt of the refusals
        self._own_refused_in = 0  # the command under which the engine's own placement, which has no digest, was refused
        self._changing: asyncio.Task[None] | None = None
        self._has_served = False  # once it has served, it loads maps in its turn only
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._serving = asyncio.Event()
        self._serving.set()
        self._broken: str | None = None

    @property
    def draining(self) -> bool:
        """Return whether new requests must go elsewhere."""
        return not self._serving.is_set()

    async def serving_again(self) -> None:
        await self._serving.wait()

    async def receive(self, user_config: Any) -> None:
        command = self._read(user_config)
        if command is not None:
            self._command, self._number = command, command.number
            self._check(command)
            if not self._has_served:
                await self._start_with(command.good)
        self._stamp = stamp_of(user_config)
        self._change_if_it_is_our_turn()

    def status(self) -> dict[str, Any]:
        self._has_served = True
        return {
            "replica_id": self.replica_id,
            "stamp": self._stamp,
            "number": self._number,
            "shape": asdict(self._engine.shape),
            "loaded": digest(self._loaded),
            "placement_id": None if self._loaded is None else self._loaded.placement_id,
            "changing": self._changing is not None,
            "refusals": dict(self._refusals),
        }

    def check_health(self) -> None:
        self._has_served = True
        if self._broken is not None:
            raise BrokenError(self._broken)

    @asynccontextmanager
    async def request_in_progress(self) -> AsyncIterator[None]:
        """Wrap each request that this replica serves itself; the engine does not stop before they end."""
        self._has_served = True
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    def _read(self, user_config: Any) -> RolloutCommand | None:
        document = user_config.get(KEY) if isinstance(user_config, Mapping) else None
        if document is None:
            return None
        try:
            return read_command(document)
        except DamagedError as error:
            _LOG.warning("expert map command ignored: %s", error)
            return None

    def _check(self, command: RolloutCommand) -> None:
        tried = (digest(command.next), command.attempt)
        if tried != self._tried:
            self._tried, self._refusals = tried, {}
            if command.next is not None and command.next.digest != digest(self._loaded):
                self._checked(command.next)

    def _checked(self, file: MapFile) -> None:
        try:
            self._engine.check(file.text())
        except Exception as error:  # noqa: BLE001 - any error of an engine is a refusal
            self._refuse(file, error)

    def _refuse(self, file: MapFile | None, error: BaseException) -> None:
        reason = (str(error) or type(error).__name__)[:300]
        _LOG.warning("expert map %s is refused: %s", digest(file) or "of the engine", reason)
        if file is not None:
            self._refusals[file.digest] = reason
        else:
            self._own_refused_in = self._number

    async def _start_with(self, good: MapFile | None) -> None:
        self._has_served = True
        if good is None:
            return
        try:
            await self._engine.load(good.text())
        except Exception as error:  # noqa: BLE001 - it starts all the same, with the engine's own placement
            self._refuse(good, error)
            await self._load_or_break(None)
        else:
            self._loaded = good

    def _change_if_it_is_our_turn(self) -> None:
        if self._changing is None and self._is_our_turn():
            if not self._engine.live:
                self._serving.clear()
            self._changing = asyncio.create_task(self._change())

    def _is_our_turn(self) -> bool:
        command = self._command
        if command is None or command.turn != self.replica_id or self._broken is not None:
            return False
        wanted = digest(command.goal)
        refused = self._own_refused_in == command.number if wanted is None else wanted in self._refusals
        return wanted != digest(self._loaded) and not refused

    async def _change(self) -> None:
        try:
            while self._is_our_turn():  # a newer command may name another map
                await self._change_to(self._command.goal if self._command is not None else None)
        finally:
            self._changing = None
            if self._broken is None:
                self._serving.set()

    async def _change_to(self, goal: MapFile | None) -> None:
        before = self._loaded
        try:
            if not self._engine.live:
                await self._drained()
        except TimeoutError as error:
            self._refuse(goal, error)
            return
        try:
            await self._engine.load(None if goal is None else goal.text())
        except Exception as error:  # noqa: BLE001 - any error of an engine is a refusal
            self._refuse(goal, error)
            await self._load_or_break(before)
        else:
            self._loaded = goal
            _LOG.info("expert map %s is loaded", digest(goal) or "of the engine")

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(self._drain_s):
                await self._idle.wait()
        except TimeoutError:
            raise TimeoutError(f"{self._in_flight} requests had not ended after {self._drain_s:g} s") from None

    async def _load_or_break(self, file: MapFile | None) -> None:
        try:
            await self._engine.load(None if file is None else file.text())
        except Exception as error:  # noqa: BLE001 - reported by check_health
            self._broken = f"the previous map could not be loaded again: {str(error) or type(error).__name__}"
            _LOG.exception("the engine is lost: %s", self._broken)
        else:
            self._loaded = file
