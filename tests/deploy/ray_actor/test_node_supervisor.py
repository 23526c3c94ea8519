"""The loop that supervises node actors: it starts missing ones and reports unresponsive ones."""

import threading
from typing import Any

from deploy.ray_actor.messages import ControllerName, NodeActorSettings, NodeReport
from deploy.ray_actor.node_supervisor import NodeSupervisor
from tests.deploy.ray_actor.doubles import ClusterDouble, node
from tests.testbed.waiting import wait_for

HOST = ControllerName("controller", 1)
A, B = "controller.g1.watch.0.a0", "controller.g1.watch.1.b0"


def report_of(name: str, index: int, **more: Any) -> dict[str, Any]:
    return NodeReport(node_id=f"{name}0", node_name=name, index=index, polls=3).model_dump(mode="json") | more


def supervisor_of(
    cluster: ClusterDouble, *, own: str = "a0", left: list[str] | None = None, **options: Any
) -> NodeSupervisor:
    leave = (lambda: None) if left is None else (lambda: left.append("left"))
    settings = options.pop("settings", NodeActorSettings())
    return NodeSupervisor(HOST, cluster=cluster, settings=settings, own_node_id=own, leave=leave, **options)


def test_nodes_get_actors_and_their_reports_are_kept() -> None:
    cluster = ClusterDouble(alive=(node("a"), node("b")), answers={"a0": report_of("a", 0), "b0": report_of("b", 1)})
    supervisor = supervisor_of(cluster)
    supervisor.turn()
    assert (cluster.placed[A], cluster.placed[B]) == ("a0", "b0")
    assert [(report.node_name, report.polls, report.responds) for report in supervisor.reports] == [
        ("a", 3, True),
        ("b", 3, True),
    ]
    assert cluster.received[B]["index"] == 1


def test_a_dead_node_actor_is_created_again_and_an_unresponsive_one_is_reported() -> None:
    cluster = ClusterDouble(alive=(node("a"), node("b")), answers={"a0": report_of("a", 0)})
    supervisor = supervisor_of(cluster)
    supervisor.turn()
    cluster.actors.pop(A)
    supervisor.turn()
    assert A in cluster.actors
    assert [report.responds for report in supervisor.reports] == [True, False]
    assert cluster.killed == []


def test_an_invalid_report_of_a_node_actor_is_reported() -> None:
    cluster = ClusterDouble(alive=(node("a"),), answers={"a0": report_of("a", 0, polls="many")})
    supervisor = supervisor_of(cluster)
    supervisor.turn()
    (report,) = supervisor.reports
    assert not report.responds
    assert "the report is invalid" in (report.message or "")


def test_unknown_fields_of_a_newer_version_are_ignored() -> None:
    cluster = ClusterDouble(alive=(node("a"),), answers={"a0": report_of("a", 0, humidity=0.4)})
    supervisor = supervisor_of(cluster)
    supervisor.turn()
    assert supervisor.reports[0].responds


def test_a_node_actor_that_cannot_be_started_does_not_affect_the_others() -> None:
    class Refusing(ClusterDouble):
        def create(self, actor_class: type, name: str, *args: Any, node_id: str | None, **more: Any) -> None:
            if node_id == "a0":
                raise RuntimeError("the node is gone")
            super().create(actor_class, name, *args, node_id=node_id, **more)

    cluster = Refusing(alive=(node("a"), node("b")), answers={"b0": report_of("b", 1)})
    supervisor = supervisor_of(cluster)
    supervisor.turn()
    assert [report.responds for report in supervisor.reports] == [False, True]


def test_existing_node_actors_end_when_disabled() -> None:
    cluster = ClusterDouble(alive=(node("a"),), actors={A: None})
    supervisor_of(cluster, settings=None).turn()
    assert cluster.actors == {}


def test_the_controller_leaves_a_draining_node_if_another_exists() -> None:
    left: list[str] = []
    supervisor_of(ClusterDouble(alive=(node("a", draining=True), node("b"))), left=left).turn()
    assert left == ["left"]


def test_the_controller_stays_on_the_only_node_and_if_another_node_drains() -> None:
    left: list[str] = []
    supervisor_of(ClusterDouble(alive=(node("a", draining=True),)), left=left).turn()
    supervisor_of(ClusterDouble(alive=(node("a"), node("b", draining=True))), left=left).turn()
    assert left == []


def test_a_failed_turn_does_not_end_the_loop() -> None:
    turns = threading.Semaphore(0)

    class Failing(ClusterDouble):
        def nodes(self) -> Any:
            turns.release()
            raise ConnectionError("no control service")

    supervisor = supervisor_of(Failing(), every_s=0.001)
    supervisor.start()
    supervisor.start()
    for _ in range(3):
        assert turns.acquire(timeout=60.0)
    supervisor.stop()
    supervisor.stop()
    wait_for(
        lambda: [each.name for each in threading.enumerate() if each.name == "watchers"],
        lambda left: not left,
        what="end",
    )
