"""The loop that keeps watchers: what is missing is started, what is silent is told, whatever was before."""

import threading
from typing import Any

from deploy.ray_actor.messages import ControllerName, NodeActorSettings, NodeReport
from deploy.ray_actor.node_supervisor import NodeSupervisor
from tests.deploy.ray_actor.doubles import ClusterDouble, node
from tests.testbed.waiting import wait_for

HOST = ControllerName("controller", 1)
A, B = "controller.g1.watch.0.a0", "controller.g1.watch.1.b0"


def said(name: str, index: int, **more: Any) -> dict[str, Any]:
    return NodeReport(node_id=f"{name}0", node_name=name, index=index, looks=3).model_dump(mode="json") | more


def keeper(cluster: ClusterDouble, *, own: str = "a0", left: list[str] | None = None, **options: Any) -> NodeSupervisor:
    leave = (lambda: None) if left is None else (lambda: left.append("left"))
    settings = options.pop("settings", NodeActorSettings())
    return NodeSupervisor(HOST, cluster=cluster, settings=settings, own_node_id=own, leave=leave, **options)


def test_nodes_get_watchers_and_what_they_say_is_kept() -> None:
    cluster = ClusterDouble(there=(node("a"), node("b")), answers={"a0": said("a", 0), "b0": said("b", 1)})
    keeping = keeper(cluster)
    keeping.turn()
    assert (cluster.placed[A], cluster.placed[B]) == ("a0", "b0")
    assert [(report.node_name, report.looks, report.answers) for report in keeping.reports] == [
        ("a", 3, True),
        ("b", 3, True),
    ]
    assert cluster.told[B]["index"] == 1


def test_one_that_died_is_made_anew_and_one_that_is_silent_is_told_of() -> None:
    cluster = ClusterDouble(there=(node("a"), node("b")), answers={"a0": said("a", 0)})
    keeping = keeper(cluster)
    keeping.turn()
    cluster.actors.pop(A)
    keeping.turn()
    assert A in cluster.actors
    assert [report.answers for report in keeping.reports] == [True, False]
    assert cluster.killed == []


def test_one_whose_words_are_not_understood_is_told_of() -> None:
    cluster = ClusterDouble(there=(node("a"),), answers={"a0": said("a", 0, looks="many")})
    keeping = keeper(cluster)
    keeping.turn()
    (report,) = keeping.reports
    assert not report.answers
    assert "the report is invalid" in (report.message or "")


def test_what_a_newer_version_says_more_is_left_out() -> None:
    cluster = ClusterDouble(there=(node("a"),), answers={"a0": said("a", 0, humidity=0.4)})
    keeping = keeper(cluster)
    keeping.turn()
    assert keeping.reports[0].answers


def test_one_that_cannot_be_started_does_not_hold_the_others_up() -> None:
    class Refusing(ClusterDouble):
        def create(self, actor_class: type, name: str, *args: Any, node_id: str | None, **more: Any) -> None:
            if node_id == "a0":
                raise RuntimeError("the node is gone")
            super().create(actor_class, name, *args, node_id=node_id, **more)

    cluster = Refusing(there=(node("a"), node("b")), answers={"b0": said("b", 1)})
    keeping = keeper(cluster)
    keeping.turn()
    assert [report.answers for report in keeping.reports] == [False, True]


def test_without_watching_those_that_are_there_end() -> None:
    cluster = ClusterDouble(there=(node("a"),), actors={A: None})
    keeper(cluster, settings=None).turn()
    assert cluster.actors == {}


def test_it_leaves_a_node_that_drains_where_there_is_another() -> None:
    left: list[str] = []
    keeper(ClusterDouble(there=(node("a", draining=True), node("b"))), left=left).turn()
    assert left == ["left"]


def test_it_stays_where_nothing_else_is_left_or_another_drains() -> None:
    left: list[str] = []
    keeper(ClusterDouble(there=(node("a", draining=True),)), left=left).turn()
    keeper(ClusterDouble(there=(node("a"), node("b", draining=True))), left=left).turn()
    assert left == []


def test_a_turn_that_fails_does_not_end_the_loop() -> None:
    turns = threading.Semaphore(0)

    class Failing(ClusterDouble):
        def nodes(self) -> Any:
            turns.release()
            raise ConnectionError("no control service")

    keeping = keeper(Failing(), every_s=0.001)
    keeping.start()
    keeping.start()
    for _ in range(3):
        assert turns.acquire(timeout=60.0)
    keeping.stop()
    keeping.stop()
    wait_for(
        lambda: [each.name for each in threading.enumerate() if each.name == "watchers"],
        lambda left: not left,
        what="end",
    )
