"""A deployment of replica agents over engine doubles; the test controls loads and the delivery of configs."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from deploy.expert_rollout.rollout import DeploymentState, Move, Write, next_move
from fleetwright.expert_rollout.messages import (
    KEY,
    EngineShape,
    MapFile,
    ReplicaStatus,
    RolloutCommand,
    read_command,
    stamp_of,
)
from fleetwright.expert_rollout.replica_agent import BrokenError, ReplicaAgent

STATUS = TypeAdapter(ReplicaStatus)
OLD, NEW, OTHER = (MapFile.of(f'{{"map": "{name}"}}', placement_id=name) for name in ("old", "new", "other"))
KNOWN = {file.digest: file for file in (OLD, NEW, OTHER)}


class EngineDouble:
    """An engine double that loads when the test allows, and fails maps by their text at the check or at the load."""

    def __init__(self, *, live: bool = False) -> None:
        self.live = live
        self.shape = EngineShape(engine="vllm")
        self.fails_check: set[str] = set()
        self.fails_load: set[str | None] = set()
        self.loads: list[str | None] = []
        self.gate: asyncio.Event | None = None  # while not set, loads wait for it

    def check(self, text: str) -> None:
        if text in self.fails_check:
            raise ValueError("does not fit")

    async def load(self, text: str | None) -> None:
        self.loads.append(text)
        if self.gate is not None:
            await self.gate.wait()
        if text in self.fails_load:
            raise RuntimeError("does not start")


@dataclass
class Replica:
    engine: EngineDouble
    agent: ReplicaAgent
    delivered: str = ""  # the last delivered config, as JSON


@dataclass
class ReplicaGroup:
    """The state of Serve (`config`, `requested`) and the live replicas."""

    requested: int = 4
    config: dict[str, Any] = field(default_factory=dict)
    replicas: dict[str, Replica] = field(default_factory=dict)
    born: int = 0
    fails_check: set[str] = field(default_factory=set)
    fails_load: set[str | None] = field(default_factory=set)
    max_out: int = 0

    async def start(self) -> str:
        """Add a replica as Serve does: with the current config, before it takes requests."""
        self.born += 1
        name = f"r{self.born:03}"
        engine = EngineDouble()
        engine.fails_check, engine.fails_load = self.fails_check, self.fails_load
        replica = Replica(engine, ReplicaAgent(engine, replica_id=name))
        if self.config:
            await replica.agent.receive(self.config)
        replica.delivered = json.dumps(self.config)
        replica.agent.check_health()
        engine.gate = asyncio.Event()  # from now on loads wait for the test
        self.replicas[name] = replica
        return name

    async def fill(self) -> None:
        while len(self.replicas) < self.requested:
            await self.start()

    async def deliver(self, name: str) -> None:
        """Serve's `reconfigure`; it is called only where something changed."""
        replica = self.replicas[name]
        if replica.delivered != (now := json.dumps(self.config)):
            replica.delivered = now
            await replica.agent.receive(json.loads(now))
        await self.let_tasks_run()

    async def finish(self, name: str) -> None:
        """Finish the load of this replica's engine."""
        replica = self.replicas[name]
        gate = replica.engine.gate
        assert gate is not None
        gate.set()
        while replica.agent.status()["changing"]:
            await asyncio.sleep(0)
        replica.engine.gate = asyncio.Event()
        await self.let_tasks_run()
        try:
            replica.agent.check_health()
        except BrokenError:
            self.kill(name)

    def kill(self, name: str) -> None:
        del self.replicas[name]

    async def let_tasks_run(self) -> None:
        for _ in range(4):  # new tasks start
            await asyncio.sleep(0)
        self.max_out = max(self.max_out, sum(replica.agent.draining for replica in self.replicas.values()))

    @property
    def statuses(self) -> dict[str, ReplicaStatus]:
        """Through JSON, as the controller reads them."""
        return {
            name: STATUS.validate_json(json.dumps(replica.agent.status())) for name, replica in self.replicas.items()
        }

    @property
    def command(self) -> RolloutCommand | None:
        try:
            return read_command(self.config[KEY])
        except (KeyError, ValueError):
            return None

    def state(self) -> DeploymentState:
        return DeploymentState(
            requested=self.requested,
            running=frozenset(self.replicas),
            unsettled=0,
            stamp=stamp_of(self.config),
            command=self.command,
            statuses=self.statuses,
        )

    def control(self, wanted: MapFile, *, attempt: int = 1) -> Move:
        """One reconcile of a controller without state."""
        move = next_move(wanted=wanted, attempt=attempt, state=self.state(), known=KNOWN)
        if isinstance(move, Write):
            self.config = json.loads(json.dumps(self.config | {KEY: move.command.document()}))
        return move

    async def settle(self, wanted: MapFile, *, attempt: int = 1, rounds: int = 200) -> Move:
        """Deliver and finish everything until the controller neither writes nor waits."""
        move: Move | None = None
        for _ in range(rounds):
            await self.fill()
            for name in list(self.replicas):
                await self.deliver(name)
            for name in list(self.replicas):
                await self.finish(name)
            await self.fill()
            move = self.control(wanted, attempt=attempt)
            if not isinstance(move, Write) and self.is_settled():
                return move
        raise AssertionError(f"no end after {rounds} rounds: {move}")

    def is_settled(self) -> bool:
        return len(self.replicas) == self.requested and all(
            entry.stamp == stamp_of(self.config) and not entry.changing for entry in self.statuses.values()
        )

    @property
    def loaded(self) -> set[str | None]:
        return {entry.placement_id for entry in self.statuses.values()}

    @property
    def loads(self) -> int:
        """The number of maps given to serving replicas."""
        return sum(len(replica.engine.loads) for replica in self.replicas.values())
