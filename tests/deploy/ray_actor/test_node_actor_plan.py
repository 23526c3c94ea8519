"""Which nodes need a watcher: one on each that takes work, by indices that stay."""

from deploy.ray_actor.messages import (
    ControllerName,
    NodeActorName,
    NodeActorSettings,
    controllers_among,
    node_actors_among,
)
from deploy.ray_actor.node_supervisor import NodeActorPlan, configs_for, plan_node_actors
from tests.deploy.ray_actor.doubles import node

HOST = ControllerName("controller", 2)
A, B, C = node("a", is_head=True), node("b"), node("c")


def watcher(name: str, index: int, *, generation: int = 2, host: str = "controller") -> NodeActorName:
    return NodeActorName(ControllerName(host, generation), index, f"{name}0")


def names(*actors: object) -> frozenset[str]:
    return frozenset(map(str, actors))


def plan(*nodes: object, there: frozenset[str] = frozenset(), watching: bool = True) -> NodeActorPlan:
    return plan_node_actors(HOST, nodes=nodes, names=there, enabled=watching)  # type: ignore[arg-type]


def test_names_are_read_back_and_others_are_nobodys() -> None:
    known = [ControllerName("a-1", 1), ControllerName("controller", 12)]
    watchers = [watcher("a", 0), watcher("b", 3, generation=12)]
    others = {"SERVE_CONTROLLER_ACTOR", "controller.g", "controller.g1.watch", "controller.g1.watch.0.xyz", "A.g1"}
    assert controllers_among(names(*known, *watchers) | others) == known
    assert node_actors_among(names(*known, *watchers) | others) == watchers


def test_each_node_gets_one_the_head_first() -> None:
    assert plan(C, B, A) == NodeActorPlan(start=(watcher("a", 0), watcher("b", 1), watcher("c", 2)))


def test_those_that_are_there_stay_with_their_index_and_new_nodes_fill_the_gaps() -> None:
    assert plan(A, B, C, there=names(HOST, watcher("c", 1))) == NodeActorPlan(
        start=(watcher("a", 0), watcher("b", 2)), keep=(watcher("c", 1),)
    )


def test_a_node_that_drains_or_is_gone_has_none() -> None:
    there = names(HOST, watcher("a", 0), watcher("b", 1), watcher("c", 2))
    draining = node("b", draining=True)
    assert plan(A, draining, there=there) == NodeActorPlan(
        keep=(watcher("a", 0),), end=(watcher("b", 1), watcher("c", 2))
    )


def test_without_watching_none_is_left() -> None:
    assert plan(A, B, there=names(HOST, watcher("a", 0)), watching=False) == NodeActorPlan(end=(watcher("a", 0),))


def test_while_an_older_generation_is_there_it_is_that_ones_turn() -> None:
    old = ControllerName("controller", 1)
    assert plan(A, there=names(HOST, old, watcher("a", 0, generation=1))) == NodeActorPlan()


def test_watchers_of_other_generations_end_and_those_of_other_controllers_stay() -> None:
    there = names(HOST, ControllerName("canary", 1), watcher("a", 0, generation=1), watcher("a", 0, host="canary"))
    assert plan(A, there=there) == NodeActorPlan(start=(watcher("a", 0),), end=(watcher("a", 0, generation=1),))


def test_of_two_on_one_node_or_with_one_index_the_first_stays() -> None:
    there = names(HOST, watcher("a", 0), watcher("a", 1), watcher("b", 0))
    assert plan(A, B, there=there) == NodeActorPlan(
        start=(watcher("b", 1),), keep=(watcher("a", 0),), end=(watcher("b", 0), watcher("a", 1))
    )


def test_all_are_told_the_others_addresses_and_rays_ports() -> None:
    nodes = [node("a", ports=frozenset({7001, 7000})), node("b", gpus=8, accelerator="H100")]
    orders = configs_for([watcher("a", 0), watcher("b", 5)], nodes=nodes, settings=NodeActorSettings())
    assert orders[watcher("a", 0)].peers == orders[watcher("b", 5)].peers == {"10.0.0.10": 0, "10.0.0.11": 5}
    assert orders[watcher("b", 5)].ignored_ports == (7000, 7001)
    assert (orders[watcher("b", 5)].gpus, orders[watcher("b", 5)].accelerator) == (8, "H100")
    assert (orders[watcher("b", 5)].index, orders[watcher("b", 5)].node_name) == (5, "b")


def test_an_address_of_several_nodes_names_none_of_them() -> None:
    nodes = [node("a", address="::1"), node("b", address="::1"), node("c")]
    watchers = [watcher("a", 0), watcher("b", 1), watcher("c", 2)]
    orders = configs_for(watchers, nodes=nodes, settings=NodeActorSettings())
    assert [order.peers for order in orders.values()] == [{}, {}, {}]  # with itself alone nobody talks


def test_a_node_that_went_meanwhile_is_told_nothing() -> None:
    assert list(configs_for([watcher("a", 0), watcher("b", 1)], nodes=[A], settings=NodeActorSettings())) == [
        watcher("a", 0)
    ]
