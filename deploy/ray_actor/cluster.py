"""A Ray cluster: nodes, named actors of one namespace, calls on them.  Ray is an extra and is loaded on first use.

All calls are public API of Ray except the list of draining nodes, for which there is none; tests/cluster checks it
against Ray.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.executors import UnreachableClusterError, check_reachable
from deploy.common.text import reason_of

HEAD_RESOURCE: Final = "node:__internal_head__"
ACCELERATOR_LABEL: Final = "ray.io/accelerator-type"
_PORTS: Final = ("NodeManagerPort", "ObjectManagerPort", "MetricsExportPort", "RuntimeEnvAgentPort")


class RayMissingError(ActuationError):
    """Ray is not installed here."""


class ActorExistsError(ActuationError):
    """An actor of that name exists already."""


class ActorNotFoundError(ActuationError):
    """There is no actor of that name, or it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    node_id: str
    name: str
    address: str
    is_head: bool = False
    draining: bool = False
    gpus: int = 0
    accelerator: str | None = None
    ports: frozenset[int] = frozenset()  # of Ray's daemons


@dataclass(slots=True)
class RayCluster:
    """The cluster that this process has joined."""

    namespace: str
    _handles: dict[str, Any] = field(default_factory=dict)

    def nodes(self) -> tuple[NodeFacts, ...]:
        draining = draining_nodes()
        return tuple(_facts(node, draining) for node in _ray().nodes() if node["Alive"])

    def names(self) -> frozenset[str]:
        """Return the names of actors that live or that Ray restarts."""
        return frozenset(_ray().util.list_named_actors())

    def create(
        self,
        actor_class: type,
        name: str,
        *args: Any,
        node_id: str | None,
        pinned: bool,
        options: Mapping[str, Any],
    ) -> None:
        """Create a detached actor on a node: only there if `pinned`, else preferably there.  Raise ActorExistsError.

        `options` are Ray's actor options.
        """
        placed = {} if node_id is None else {"scheduling_strategy": _affinity(node_id, soft=not pinned)}
        fixed = {"name": name, "namespace": self.namespace, "lifetime": "detached", "num_cpus": 0}
        try:
            self._handles[name] = _ray().remote(actor_class).options(**fixed, **placed, **options).remote(*args)
        except ValueError as error:  # ActorAlreadyExistsError is one
            if "already taken" in str(error):
                raise ActorExistsError(f"an actor {name} exists already") from error
            raise ActuationError(f"Ray does not start {name}: {reason_of(error)}") from error

    def call(self, name: str, method: str, *, timeout_s: float) -> Any:
        """Return the result of a method of an actor.  Raise ActorNotFoundError, UnreachableError."""
        try:
            return _ray().get(getattr(self._handle(name), method).remote(), timeout=timeout_s)
        except _ray().exceptions.GetTimeoutError as error:
            raise UnreachableError(f"actor {name} does not respond within {timeout_s:g} s") from error
        except _ray().exceptions.RayActorError as error:
            self._handles.pop(name, None)
            raise ActorNotFoundError(f"actor {name} has ended: {reason_of(error)}") from error
        except _ray().exceptions.RayError as error:
            raise UnreachableError(f"actor {name}: {reason_of(error)}") from error

    def call_all(self, method: str, args: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Return the results of a method of many actors, each with its argument, without actors that do not respond."""
        name_of: dict[Any, str] = {}
        for name, argument in args.items():
            try:
                name_of[getattr(self._handle(name), method).remote(argument)] = name
            except _ray().exceptions.PendingCallsLimitExceeded:
                continue  # the handle counts pending calls, so it stays
            except (ActorNotFoundError, _ray().exceptions.RayError):
                self._handles.pop(name, None)
        if not name_of:
            return {}
        ready, _late = _ray().wait(list(name_of), num_returns=len(name_of), timeout=timeout_s)
        results: dict[str, Any] = {}
        for ref in ready:
            try:
                results[name_of[ref]] = _ray().get(ref)
            except _ray().exceptions.RayError:
                self._handles.pop(name_of[ref], None)
        return results

    def kill(self, name: str) -> None:
        """End an actor for good; without effect where there is none."""
        try:
            _ray().kill(self._handle(name), no_restart=True)
        except ActorNotFoundError:
            return
        finally:
            self._handles.pop(name, None)

    def _handle(self, name: str) -> Any:
        if name not in self._handles:
            try:
                self._handles[name] = _ray().get_actor(name, namespace=self.namespace)
            except ValueError as error:
                raise ActorNotFoundError(f"no actor {name} in the namespace {self.namespace}") from error
        return self._handles[name]


def join(address: str, *, namespace: str) -> RayCluster:
    """Join the cluster at an address as a driver.  Raise RayMissingError, UnreachableClusterError."""
    ray = _ray()
    check_reachable(address)
    try:
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UnreachableClusterError(f"no Ray cluster at {address}: {reason_of(error)}") from error
    return RayCluster(namespace)


def leave() -> None:
    _ray().shutdown()


@dataclass(frozen=True, slots=True)
class Placement:
    node_id: str
    namespace: str
    restarted: bool


def own_placement() -> Placement:
    context = _ray().get_runtime_context()
    return Placement(context.get_node_id(), context.namespace, bool(context.was_current_actor_reconstructed))


def draining_nodes() -> frozenset[str]:
    """Return the nodes that take no new work, from the one private Ray API of this package.

    A `ray://` client has no access to it and gets an empty set; Ray itself places nothing on a draining node.
    """
    if import_module("ray.util.client").ray.is_connected():
        return frozenset()
    state = import_module("ray._private.state").state
    return frozenset(state.get_draining_nodes())


def _facts(node: Mapping[str, Any], draining: frozenset[str]) -> NodeFacts:
    resources, labels = node["Resources"], node.get("Labels") or {}
    return NodeFacts(
        node_id=node["NodeID"],
        name=node.get("NodeName") or node["NodeManagerAddress"],
        address=node["NodeManagerAddress"],
        is_head=HEAD_RESOURCE in resources,
        draining=node["NodeID"] in draining,
        gpus=int(resources.get("GPU", 0)),
        accelerator=labels.get(ACCELERATOR_LABEL),
        ports=frozenset(port for name in _PORTS if (port := node.get(name, 0)) > 0),
    )


def _affinity(node_id: str, *, soft: bool) -> Any:
    strategies = import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node_id, soft=soft)


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise RayMissingError("joining a Ray cluster needs an extra: pip install 'fleetwright[ray]'") from error
