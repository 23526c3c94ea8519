"""All that is asked of Ray: nodes, named actors, calls on them.  Ray is an extra and is loaded when first used.

Everything is public API of Ray but the map of draining nodes, for which there is none; tests/cluster holds Ray to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Protocol

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.executors import UnreachableClusterError, refuse_silence

HEAD_RESOURCE: Final = "node:__internal_head__"
ACCELERATOR_LABEL: Final = "ray.io/accelerator-type"
_PORTS: Final = ("NodeManagerPort", "ObjectManagerPort", "MetricsExportPort", "RuntimeEnvAgentPort")
_HOST_THREADS: Final = 4  # an answer must not wait for a stop
_MAX_PENDING: Final = 2  # calls on a watcher that does not answer


class NoRayError(ActuationError):
    """Ray is not installed here."""


class TakenError(ActuationError):
    """An actor of that name is there already."""


class NoActorError(ActuationError):
    """No actor of that name, or it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One living node."""

    node_id: str
    name: str
    address: str
    is_head: bool = False
    draining: bool = False
    gpus: int = 0
    accelerator: str | None = None
    ports: frozenset[int] = frozenset()  # of Ray's daemons


class Cluster(Protocol):
    """What controllers and commands ask of a cluster.  Names are those of one namespace."""

    def nodes(self) -> tuple[NodeFacts, ...]:
        """Those that are alive."""
        ...

    def names(self) -> frozenset[str]:
        """Actors that live, or that Ray is starting again."""
        ...

    def start_host(self, name: str, *args: Any, node_id: str | None, runtime_env: Mapping[str, Any] | None) -> None:
        """A controller, on this node where that can be.  Raises TakenError."""
        ...

    def start_watcher(self, name: str, *args: Any, node_id: str) -> None:
        """A watcher, on this node or nowhere.  Raises TakenError."""
        ...

    def call(self, name: str, method: str, *, timeout_s: float) -> Any:
        """What an actor answers.  Raises NoActorError, UnreachableError."""
        ...

    def call_all(self, method: str, args: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """What many actors answer, each told one thing; those that do not answer are missing."""
        ...

    def kill(self, name: str) -> None:
        """End an actor for good; none of that name is as good."""
        ...


@dataclass(slots=True)
class RayCluster:
    """The cluster that this process has joined."""

    namespace: str
    _handles: dict[str, Any] = field(default_factory=dict)

    def nodes(self) -> tuple[NodeFacts, ...]:
        """Those that are alive."""
        draining = draining_nodes()
        return tuple(_facts(node, draining) for node in _ray().nodes() if node["Alive"])

    def names(self) -> frozenset[str]:
        """Actors that live, or that Ray is starting again."""
        return frozenset(_ray().util.list_named_actors())

    def start_host(self, name: str, *args: Any, node_id: str | None, runtime_env: Mapping[str, Any] | None) -> None:
        """A controller, on this node where that can be."""
        more = {} if runtime_env is None else {"runtime_env": dict(runtime_env)}
        placed = {} if node_id is None else {"scheduling_strategy": _affinity(node_id, soft=True)}
        host = import_module("deploy.ray_actor.controller_actor").ControllerHost
        self._create(
            host, name, args, max_restarts=-1, max_task_retries=-1, max_concurrency=_HOST_THREADS, **placed, **more
        )

    def start_watcher(self, name: str, *args: Any, node_id: str) -> None:
        """A watcher, on this node or nowhere."""
        watcher = import_module("deploy.ray_actor.node_actor").NodeWatcher
        placed = _affinity(node_id, soft=False)
        self._create(watcher, name, args, max_restarts=0, max_pending_calls=_MAX_PENDING, scheduling_strategy=placed)

    def call(self, name: str, method: str, *, timeout_s: float) -> Any:
        """What an actor answers."""
        try:
            return _ray().get(getattr(self._handle(name), method).remote(), timeout=timeout_s)
        except _ray().exceptions.GetTimeoutError as error:
            raise UnreachableError(f"actor {name} does not answer within {timeout_s:g} s") from error
        except _ray().exceptions.RayActorError as error:
            self._handles.pop(name, None)
            raise NoActorError(f"actor {name} has ended: {_first_line(error)}") from error
        except _ray().exceptions.RayError as error:
            raise UnreachableError(f"actor {name}: {_first_line(error)}") from error

    def call_all(self, method: str, args: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """What many actors answer, each told one thing; those that do not answer are missing."""
        name_of: dict[Any, str] = {}
        for name, told in args.items():
            try:
                name_of[getattr(self._handle(name), method).remote(told)] = name
            except _ray().exceptions.PendingCallsLimitExceeded:
                continue  # the limit is the handle's, so it is kept
            except (NoActorError, _ray().exceptions.RayError):
                self._handles.pop(name, None)
        if not name_of:
            return {}
        answered, _late = _ray().wait(list(name_of), num_returns=len(name_of), timeout=timeout_s)
        answers: dict[str, Any] = {}
        for ref in answered:
            try:
                answers[name_of[ref]] = _ray().get(ref)
            except _ray().exceptions.RayError:
                self._handles.pop(name_of[ref], None)
        return answers

    def kill(self, name: str) -> None:
        """End an actor for good; none of that name is as good."""
        try:
            _ray().kill(self._handle(name), no_restart=True)
        except NoActorError:
            return
        finally:
            self._handles.pop(name, None)

    def _handle(self, name: str) -> Any:
        if name not in self._handles:
            try:
                self._handles[name] = _ray().get_actor(name, namespace=self.namespace)
            except ValueError as error:
                raise NoActorError(f"no actor {name} in the namespace {self.namespace}") from error
        return self._handles[name]

    def _create(self, cls: type, name: str, args: tuple[Any, ...], **options: Any) -> None:
        placed = {"name": name, "namespace": self.namespace, "lifetime": "detached", "num_cpus": 0}
        try:
            self._handles[name] = _ray().remote(cls).options(**placed, **options).remote(*args)
        except ValueError as error:  # ActorAlreadyExistsError is one
            if "already taken" in str(error):
                raise TakenError(f"an actor {name} is there already") from error
            raise ActuationError(f"Ray does not start {name}: {_first_line(error)}") from error


def join(address: str, *, namespace: str) -> RayCluster:
    """The cluster at an address, as a driver of it.  Raises NoRayError, UnreachableClusterError."""
    ray = _ray()
    refuse_silence(address)
    try:
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UnreachableClusterError(f"no Ray cluster at {address}: {_first_line(error)}") from error
    return RayCluster(namespace)


def leave() -> None:
    """Let go of the cluster; detached actors stay."""
    _ray().shutdown()


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor finds itself."""

    node_id: str
    namespace: str
    restarted: bool


def own_place() -> Place:
    """Asked from inside an actor."""
    context = _ray().get_runtime_context()
    return Place(context.get_node_id(), context.namespace, bool(context.was_current_actor_reconstructed))


def draining_nodes() -> frozenset[str]:
    """Nodes that take no new work.  The one private import: Ray tells its own libraries, and nobody else.

    By way of `ray://` it cannot be asked: none is known then, and Ray itself places nothing on one that drains.
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
        raise NoRayError("joining a Ray cluster needs an extra: pip install 'fleetwright[ray]'") from error


def _first_line(said: object) -> str:
    return next(iter(str(said).strip().splitlines()), type(said).__name__)[:300]
