"""A double of a Ray cluster: nodes set by the test, and actors that are plain objects of this process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from deploy.common.errors import UnreachableError
from deploy.ray_actor.cluster import ActorExistsError, ActorNotFoundError, NodeFacts, RayCluster
from deploy.ray_actor.controller_actor import ControllerActor
from deploy.ray_actor.messages import ControllerActorSettings, ControllerReport, LoopState
from deploy.ray_actor.node_actor import NodeActor

VERSION = version("fleetwright")


def node(name: str, **facts: Any) -> NodeFacts:
    """A node whose id and address follow from its name, a few hexadecimal digits."""
    return NodeFacts(node_id=f"{name}0", name=name, **({"address": f"10.0.0.{int(name, 16)}"} | facts))


@dataclass
class ControllerDouble:
    """A controller whose report the test sets."""

    settings: dict[str, Any]
    state: LoopState = LoopState.RUNNING
    role: str = "leader"
    version: str = VERSION
    error: str | None = None
    silent: bool = False
    commands: list[str] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        """As the real controller."""
        report = ControllerReport(
            version=self.version,
            state=self.state,
            role=self.role,
            holder="h",
            pid=1,
            node_id="a0",
            error=self.error,
            settings=self.settings,
        )
        return report.model_dump(mode="json")

    def stop(self) -> None:
        """Stop as the real controller does, without the lease."""
        self.commands.append("stop")
        self.state, self.role = LoopState.STOPPED, "unknown"

    def resume(self) -> None:
        """As the real controller."""
        self.commands.append("resume")
        self.state, self.role = LoopState.RUNNING, "leader"


@dataclass
class ClusterDouble(RayCluster):
    """A cluster without Ray.  `made` sets the fields of the next controllers."""

    namespace: str = "fleetwright"
    alive: tuple[NodeFacts, ...] = ()
    actors: dict[str, Any] = field(default_factory=dict)
    placed: dict[str, str | None] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # of node actors, by node
    killed: list[str] = field(default_factory=list)
    received: dict[str, Any] = field(default_factory=dict)
    immortal: bool = False

    def nodes(self) -> tuple[NodeFacts, ...]:
        """The nodes that the test set."""
        return self.alive

    def names(self) -> frozenset[str]:
        """The names of all actors."""
        return frozenset(self.actors)

    def create(
        self,
        actor_class: type,
        name: str,
        *args: Any,
        node_id: str | None,
        pinned: bool,
        options: Mapping[str, Any],
    ) -> None:
        """A double of a controller, or a node actor that returns its entry of `answers`."""
        assert pinned is (actor_class is NodeActor)
        if actor_class is NodeActor:
            self._place(name, args, node_id)
            return
        assert actor_class is ControllerActor
        _name, _generation, settings = args
        self._place(name, ControllerDouble(settings, **(self.made.pop(0) if self.made else {})), node_id)
        self.received[name] = options.get("runtime_env")

    def call(self, name: str, method: str, *, timeout_s: float) -> Any:
        """Call a method of a controller."""
        actor = self._actor(name)
        if actor.silent:
            raise UnreachableError(f"actor {name} does not respond within {timeout_s:g} s")
        return getattr(actor, method)()

    def call_all(self, method: str, args: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Call a method of all node actors."""
        assert (method, timeout_s > 0) == ("tend", True)
        self.received |= args
        nodes = {name: self.placed[name] for name in args if name in self.actors}
        return {name: self.answers[at] for name, at in nodes.items() if at in self.answers}

    def kill(self, name: str) -> None:
        """End an actor; a missing one is no error."""
        self.killed.append(name)
        if not self.immortal:
            self.actors.pop(name, None)

    def host(self, name: str) -> ControllerDouble:
        """The double of a controller."""
        found = self.actors[name]
        assert isinstance(found, ControllerDouble)
        return found

    def running(self, name: str, settings: ControllerActorSettings | None = None, **made: Any) -> ControllerDouble:
        """Add a controller that already runs."""
        double = ControllerDouble((settings or ControllerActorSettings()).model_dump(mode="json"), **made)
        self._place(name, double, None)
        return double

    def _place(self, name: str, actor: Any, node_id: str | None) -> None:
        if name in self.actors:
            raise ActorExistsError(f"an actor {name} exists already")
        self.actors[name], self.placed[name] = actor, node_id

    def _actor(self, name: str) -> Any:
        if name not in self.actors:
            raise ActorNotFoundError(f"no actor {name}")
        return self.actors[name]
