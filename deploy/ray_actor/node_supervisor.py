"""The loop that keeps one node actor on each node, and moves the controller off a draining node.

Level-triggered: a turn starts from the nodes and actors that exist, so it continues from any earlier state.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

import structlog
from pydantic import ValidationError

from deploy.ray_actor.cluster import ActorExistsError, NodeFacts, RayCluster
from deploy.ray_actor.messages import (
    ControllerName,
    NodeActorConfig,
    NodeActorName,
    NodeActorSettings,
    NodeReport,
    controllers_among,
    node_actors_among,
)
from deploy.ray_actor.node_actor import NodeActor

log = structlog.get_logger()
EVERY_S: Final = 5.0
REPLY_S: Final = 4.0
MAX_PENDING: Final = 2  # calls on a node actor that does not respond


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeActorPlan:
    start: tuple[NodeActorName, ...] = ()
    keep: tuple[NodeActorName, ...] = ()
    end: tuple[NodeActorName, ...] = ()


def plan_node_actors(
    host: ControllerName, *, nodes: Iterable[NodeFacts], names: frozenset[str], enabled: bool
) -> NodeActorPlan:
    """Plan one node actor of this controller on each node that is not draining, and no others of its name.

    While an older generation exists, nothing is started or ended.  A node has an index for recordings and fault
    monitors.  The index is part of the node actor's name, so a restarted controller finds it again; a node keeps its
    index while its node actor lives, and new nodes fill the gaps.
    """
    if any(each.name == host.name and each.generation < host.generation for each in controllers_among(names)):
        return NodeActorPlan()
    there = [each for each in node_actors_among(names) if each.host.name == host.name]
    wanted = {node.node_id for node in nodes if not node.draining} if enabled else set()
    keep: dict[str, NodeActorName] = {}
    for each in there:  # of two on one node, or with one index, keep the first
        taken = {kept.index for kept in keep.values()}
        if each.host == host and each.node_id in wanted and each.node_id not in keep and each.index not in taken:
            keep[each.node_id] = each
    order = {node.node_id: (not node.is_head, node.name, node.address, node.node_id) for node in nodes}
    missing = sorted(wanted - keep.keys(), key=order.__getitem__)
    indices = _free({each.index for each in keep.values()})
    return NodeActorPlan(
        start=tuple(NodeActorName(host, next(indices), node_id) for node_id in missing),
        keep=tuple(keep.values()),
        end=tuple(each for each in there if each not in keep.values()),
    )


def configs_for(
    node_actors: Iterable[NodeActorName], *, nodes: Iterable[NodeFacts], settings: NodeActorSettings
) -> dict[NodeActorName, NodeActorConfig]:
    """Return the configuration of each node actor, without addresses that several nodes share."""
    node_actors, facts = list(node_actors), {node.node_id: node for node in nodes}
    node_actors = [each for each in node_actors if each.node_id in facts]
    shared = Counter(facts[each.node_id].address for each in node_actors)
    peers = {
        facts[each.node_id].address: each.index for each in node_actors if shared[facts[each.node_id].address] == 1
    }
    ports = tuple(sorted({port for node in facts.values() for port in node.ports}))
    return {
        each: NodeActorConfig(
            index=each.index,
            node_name=facts[each.node_id].name,
            peers=peers if len(peers) > 1 else {},
            ignored_ports=ports,
            gpus=facts[each.node_id].gpus,
            accelerator=facts[each.node_id].accelerator,
            settings=settings,
        )
        for each in node_actors
    }


class NodeSupervisor:
    def __init__(
        self,
        host: ControllerName,
        *,
        cluster: RayCluster,
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
        if self._thread is None or not self._thread.is_alive():
            self._ending.clear()
            self._thread = threading.Thread(target=self._run, name="node-actors", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2 * REPLY_S)

    def turn(self) -> None:
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
        except Exception as error:  # noqa: BLE001 - Ray raises any error when a node is gone; the next turn retries
            log.warning("node_actor_not_started", name=str(node_actor), reason=str(error))
            return
        log.info("node_actor_started", name=str(node_actor))

    def _tend(
        self, node_actors: list[NodeActorName], nodes: tuple[NodeFacts, ...], settings: NodeActorSettings
    ) -> None:
        configs = configs_for(node_actors, nodes=nodes, settings=settings)
        payloads = {str(each): config.model_dump(mode="json") for each, config in configs.items()}
        documents = self._cluster.call_all("tend", payloads, timeout_s=REPLY_S)
        name_of = {node.node_id: node.name for node in nodes}
        reports = (_report(each, documents.get(str(each)), name_of[each.node_id]) for each in configs)
        self.reports = tuple(sorted(reports, key=lambda report: report.index))

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.turn()
            except Exception:
                # Ray may be unreachable for a while; the next turn starts from the state at that time.
                log.exception("node_actors_failed")
            self._ending.wait(self._every_s)


def _free(taken: set[int]) -> Iterator[int]:
    return (index for index in count() if index not in taken)


def _must_leave(own_node_id: str, nodes: tuple[NodeFacts, ...]) -> bool:
    """Return whether this actor must exit, to be restarted elsewhere: Ray moves no actor off a draining node."""
    drains = any(node.node_id == own_node_id and node.draining for node in nodes)
    return drains and any(not node.draining for node in nodes)


def _report(node_actor: NodeActorName, document: object, node_name: str) -> NodeReport:
    silent = NodeReport(node_id=node_actor.node_id, node_name=node_name, index=node_actor.index, responds=False)
    if document is None:
        return silent
    try:
        return NodeReport.model_validate(document)
    except ValidationError as error:
        return silent.model_copy(update={"message": f"the report is invalid: {error.errors()[0]['msg']}"})
