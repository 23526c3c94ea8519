"""A cluster without Ray: nodes that are said to be there, and actors that are plain objects of this process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from deploy.common.errors import UnreachableError
from deploy.ray_actor.cluster import NoActorError, NodeFacts, TakenError
from deploy.ray_actor.messages import HostReport, HostSettings, HostState

VERSION = version("fleetwright")


def node(name: str, **facts: Any) -> NodeFacts:
    """A node whose id and address follow from its name, a few hexadecimal digits."""
    return NodeFacts(node_id=f"{name}0", name=name, **({"address": f"10.0.0.{int(name, 16)}"} | facts))


@dataclass
class HostDouble:
    """A controller that says what it is told to."""

    told: dict[str, Any]
    state: HostState = HostState.RUNNING
    standing: str = "leads"
    version: str = VERSION
    error: str | None = None
    silent: bool = False
    heard: list[str] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        """As the real one."""
        report = HostReport(
            version=self.version,
            state=self.state,
            standing=self.standing,
            holder="h",
            pid=1,
            node_id="a0",
            error=self.error,
            settings=self.told,
        )
        return report.model_dump(mode="json")

    def stop(self) -> None:
        """As the real one: then it leads no more."""
        self.heard.append("stop")
        self.state, self.standing = HostState.STOPPED, "unknown"

    def resume(self) -> None:
        """As the real one."""
        self.heard.append("resume")
        self.state, self.standing = HostState.RUNNING, "leads"


@dataclass
class ClusterDouble:
    """What `Cluster` asks for.  `made` is how the next controllers turn out."""

    there: tuple[NodeFacts, ...] = ()
    actors: dict[str, Any] = field(default_factory=dict)
    placed: dict[str, str | None] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # of watchers, by node
    killed: list[str] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)
    immortal: bool = False

    def nodes(self) -> tuple[NodeFacts, ...]:
        """Those that were said to be there."""
        return self.there

    def names(self) -> frozenset[str]:
        """Of all actors."""
        return frozenset(self.actors)

    def start_host(self, name: str, *args: Any, node_id: str | None, runtime_env: Mapping[str, Any] | None) -> None:
        """A double of a controller."""
        _name, _generation, told = args
        self._place(name, HostDouble(told, **(self.made.pop(0) if self.made else {})), node_id)
        self.told[name] = runtime_env

    def start_watcher(self, name: str, *args: Any, node_id: str) -> None:
        """A watcher that answers what `answers` says."""
        self._place(name, args, node_id)

    def call(self, name: str, method: str, *, timeout_s: float) -> Any:
        """Of a controller."""
        actor = self._actor(name)
        if actor.silent:
            raise UnreachableError(f"actor {name} does not answer within {timeout_s:g} s")
        return getattr(actor, method)()

    def call_all(self, method: str, args: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Of watchers."""
        assert (method, timeout_s > 0) == ("tend", True)
        self.told |= args
        nodes = {name: self.placed[name] for name in args if name in self.actors}
        return {name: self.answers[at] for name, at in nodes.items() if at in self.answers}

    def kill(self, name: str) -> None:
        """None of that name is as good."""
        self.killed.append(name)
        if not self.immortal:
            self.actors.pop(name, None)

    def host(self, name: str) -> HostDouble:
        """A controller's double."""
        found = self.actors[name]
        assert isinstance(found, HostDouble)
        return found

    def running(self, name: str, settings: HostSettings | None = None, **made: Any) -> HostDouble:
        """A controller that was there before."""
        double = HostDouble((settings or HostSettings()).model_dump(mode="json"), **made)
        self._place(name, double, None)
        return double

    def _place(self, name: str, actor: Any, node_id: str | None) -> None:
        if name in self.actors:
            raise TakenError(f"an actor {name} is there already")
        self.actors[name], self.placed[name] = actor, node_id

    def _actor(self, name: str) -> Any:
        if name not in self.actors:
            raise NoActorError(f"no actor {name}")
        return self.actors[name]
