"""The loop that keeps one watcher on each node of the cluster, and the controller off a node that drains.

Level-triggered: a turn begins with the nodes and the actors that are there, so it goes on from wherever an earlier one,
or an earlier process, was ended.
"""

import threading
from collections.abc import Callable
from typing import Final

import structlog
from pydantic import ValidationError

from deploy.ray_actor.cluster import Cluster, NodeFacts, TakenError
from deploy.ray_actor.messages import WatcherReport, WatchSettings
from deploy.ray_actor.names import HostName, WatcherName
from deploy.ray_actor.node_actor_plan import orders_for, plan_watchers

log = structlog.get_logger()

EVERY_S: Final = 5.0
ANSWER_S: Final = 4.0


class Keeper:
    """Turns, in a thread of its own."""

    def __init__(
        self,
        host: HostName,
        *,
        cluster: Cluster,
        settings: WatchSettings | None,
        own_node_id: str,
        leave: Callable[[], None],
        every_s: float = EVERY_S,
    ) -> None:
        self._host, self._cluster, self._settings = host, cluster, settings
        self._own_node_id, self._leave = own_node_id, leave
        self._every_s = every_s
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.reports: tuple[WatcherReport, ...] = ()

    def start(self) -> None:
        """Keep from now on; again does no harm."""
        if self._thread is None or not self._thread.is_alive():
            self._ending.clear()
            self._thread = threading.Thread(target=self._run, name="watchers", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Start none any more.  Those that are there stay."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2 * ANSWER_S)

    def turn(self) -> None:
        """Bring the watchers to the nodes that there are."""
        nodes = self._cluster.nodes()
        if _must_leave(self._own_node_id, nodes):
            log.warning("node_drains", node_id=self._own_node_id)
            self._ending.set()
            self._leave()
            return
        plan = plan_watchers(self._host, nodes=nodes, names=self._cluster.names(), watching=self._settings is not None)
        for each in plan.end:
            self._cluster.kill(str(each))
        for each in plan.start:
            self._start(each)
        if self._settings is not None:
            self._tend([*plan.keep, *plan.start], nodes, self._settings)

    def _start(self, watcher: WatcherName) -> None:
        try:
            self._cluster.start_watcher(str(watcher), watcher.node_id, node_id=watcher.node_id)
        except TakenError:
            return  # by a turn of ours whose answer was lost
        except Exception as error:  # noqa: BLE001 - Ray raises what it likes when a node is gone: the next turn sees
            log.warning("watcher_not_started", watcher=str(watcher), reason=str(error))
            return
        log.info("watcher_started", watcher=str(watcher))

    def _tend(self, watchers: list[WatcherName], nodes: tuple[NodeFacts, ...], settings: WatchSettings) -> None:
        orders = orders_for(watchers, nodes=nodes, settings=settings)
        told = {str(each): order.model_dump(mode="json") for each, order in orders.items()}
        answers = self._cluster.call_all("tend", told, timeout_s=ANSWER_S)
        name_of = {node.node_id: node.name for node in nodes}
        reports = (_report(each, answers.get(str(each)), name_of[each.node_id]) for each in orders)
        self.reports = tuple(sorted(reports, key=lambda report: report.index))

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.turn()
            except Exception:
                # Ray may be out of reach for a while; the next turn begins from what is there then.
                log.exception("watchers_not_kept")
            self._ending.wait(self._every_s)


def _must_leave(own_node_id: str, nodes: tuple[NodeFacts, ...]) -> bool:
    """Ray moves no actor off a draining node: this one must end here to begin elsewhere, where it can."""
    drains = any(node.node_id == own_node_id and node.draining for node in nodes)
    return drains and any(not node.draining for node in nodes)


def _report(watcher: WatcherName, answer: object, node_name: str) -> WatcherReport:
    silent = WatcherReport(node_id=watcher.node_id, node_name=node_name, index=watcher.index, answers=False)
    if answer is None:
        return silent
    try:
        return WatcherReport.model_validate(answer)
    except ValidationError as error:
        return silent.model_copy(update={"message": f"it says what is not understood: {error.errors()[0]['msg']}"})
