"""The loop that keeps one node actor on each node, and moves the controller off a draining node.

Level-triggered: a turn starts from the nodes and actors that exist, so it continues from any earlier state.
"""

import threading
from collections.abc import Callable
from typing import Final

import structlog
from pydantic import ValidationError

from deploy.ray_actor.interface import ActorExistsError, Cluster, NodeFacts
from deploy.ray_actor.messages import NodeActorSettings, NodeReport
from deploy.ray_actor.names import ControllerName, NodeActorName
from deploy.ray_actor.node_actor import NodeActor
from deploy.ray_actor.node_actor_plan import configs_for, plan_node_actors

log = structlog.get_logger()

EVERY_S: Final = 5.0
ANSWER_S: Final = 4.0
MAX_PENDING: Final = 2  # calls on a node actor that does not respond


class NodeSupervisor:
    """Starts and ends node actors in its own thread."""

    def __init__(
        self,
        host: ControllerName,
        *,
        cluster: Cluster,
        settings: NodeActorSettings | None,
        own_node_id: str,
        leave: Callable[[], None],
        every_s: float = EVERY_S,
    ) -> None:
        self._host, self._cluster, self._settings = host, cluster, settings
        self._own_node_id, self._leave = own_node_id, leave
        self._every_s = every_s
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.reports: tuple[NodeReport, ...] = ()

    def start(self) -> None:
        """Start the loop where it does not run."""
        if self._thread is None or not self._thread.is_alive():
            self._ending.clear()
            self._thread = threading.Thread(target=self._run, name="node-actors", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the loop; node actors stay."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2 * ANSWER_S)

    def turn(self) -> None:
        """Start and end node actors for the nodes that exist."""
        nodes = self._cluster.nodes()
        if _must_leave(self._own_node_id, nodes):
            log.warning("node_drains", node_id=self._own_node_id)
            self._ending.set()
            self._leave()
            return
        plan = plan_node_actors(
            self._host, nodes=nodes, names=self._cluster.names(), enabled=self._settings is not None
        )
        for each in plan.end:
            self._cluster.kill(str(each))
        for each in plan.start:
            self._start(each)
        if self._settings is not None:
            self._tend([*plan.keep, *plan.start], nodes, self._settings)

    def _start(self, node_actor: NodeActorName) -> None:
        try:
            self._cluster.create(
                NodeActor,
                str(node_actor),
                node_actor.node_id,
                node_id=node_actor.node_id,
                pinned=True,
                options={"max_restarts": 0, "max_pending_calls": MAX_PENDING},
            )
        except ActorExistsError:
            return  # created by an earlier turn whose response was lost
        except Exception as error:  # noqa: BLE001 - Ray raises what it likes when a node is gone: the next turn sees
            log.warning("node_actor_not_started", name=str(node_actor), reason=str(error))
            return
        log.info("node_actor_started", name=str(node_actor))

    def _tend(
        self, node_actors: list[NodeActorName], nodes: tuple[NodeFacts, ...], settings: NodeActorSettings
    ) -> None:
        configs = configs_for(node_actors, nodes=nodes, settings=settings)
        payloads = {str(each): config.model_dump(mode="json") for each, config in configs.items()}
        answers = self._cluster.call_all("tend", payloads, timeout_s=ANSWER_S)
        name_of = {node.node_id: node.name for node in nodes}
        reports = (_report(each, answers.get(str(each)), name_of[each.node_id]) for each in configs)
        self.reports = tuple(sorted(reports, key=lambda report: report.index))

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.turn()
            except Exception:
                # Ray may be unreachable for a while; the next turn starts from the state at that time.
                log.exception("node_actors_failed")
            self._ending.wait(self._every_s)


def _must_leave(own_node_id: str, nodes: tuple[NodeFacts, ...]) -> bool:
    """Return whether this actor must exit, to be restarted elsewhere: Ray moves no actor off a draining node."""
    drains = any(node.node_id == own_node_id and node.draining for node in nodes)
    return drains and any(not node.draining for node in nodes)


def _report(node_actor: NodeActorName, answer: object, node_name: str) -> NodeReport:
    silent = NodeReport(node_id=node_actor.node_id, node_name=node_name, index=node_actor.index, answers=False)
    if answer is None:
        return silent
    try:
        return NodeReport.model_validate(answer)
    except ValidationError as error:
        return silent.model_copy(update={"message": f"the report is invalid: {error.errors()[0]['msg']}"})
