"""The plan of node actors: one on each usable node, with stable indices."""

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


def node_actor(name: str, index: int, *, generation: int = 2, host: str = "controller") -> NodeActorName:
    return NodeActorName(ControllerName(host, generation), index, f"{name}0")


def names(*actors: object) -> frozenset[str]:
    return frozenset(map(str, actors))


def plan(*nodes: object, existing: frozenset[str] = frozenset(), enabled: bool = True) -> NodeActorPlan:
    return plan_node_actors(HOST, nodes=nodes, names=existing, enabled=enabled)  # type: ignore[arg-type]


def test_actor_names_are_parsed_and_others_are_ignored() -> None:
    known = [ControllerName("a-1", 1), ControllerName("controller", 12)]
    node_actors = [node_actor("a", 0), node_actor("b", 3, generation=12)]
    others = {"SERVE_CONTROLLER_ACTOR", "controller.g", "controller.g1.watch", "controller.g1.watch.0.xyz", "A.g1"}
    assert controllers_among(names(*known, *node_actors) | others) == known
    assert node_actors_among(names(*known, *node_actors) | others) == node_actors


def test_each_node_gets_an_actor_starting_with_the_head_node() -> None:
    assert plan(C, B, A) == NodeActorPlan(start=(node_actor("a", 0), node_actor("b", 1), node_actor("c", 2)))


def test_existing_actors_keep_their_index_and_new_nodes_fill_the_gaps() -> None:
    assert plan(A, B, C, existing=names(HOST, node_actor("c", 1))) == NodeActorPlan(
        start=(node_actor("a", 0), node_actor("b", 2)), keep=(node_actor("c", 1),)
    )


def test_actors_of_draining_and_removed_nodes_end() -> None:
    existing = names(HOST, node_actor("a", 0), node_actor("b", 1), node_actor("c", 2))
    draining = node("b", draining=True)
    assert plan(A, draining, existing=existing) == NodeActorPlan(
        keep=(node_actor("a", 0),), end=(node_actor("b", 1), node_actor("c", 2))
    )


def test_all_node_actors_end_when_disabled() -> None:
    assert plan(A, B, existing=names(HOST, node_actor("a", 0)), enabled=False) == NodeActorPlan(
        end=(node_actor("a", 0),)
    )


def test_nothing_is_planned_while_an_older_generation_exists() -> None:
    old = ControllerName("controller", 1)
    assert plan(A, existing=names(HOST, old, node_actor("a", 0, generation=1))) == NodeActorPlan()


def test_actors_of_other_generations_end_and_of_other_controllers_stay() -> None:
    existing = names(
        HOST, ControllerName("canary", 1), node_actor("a", 0, generation=1), node_actor("a", 0, host="canary")
    )
    assert plan(A, existing=existing) == NodeActorPlan(
        start=(node_actor("a", 0),), end=(node_actor("a", 0, generation=1),)
    )


def test_the_first_of_two_actors_with_one_node_or_index_stays() -> None:
    existing = names(HOST, node_actor("a", 0), node_actor("a", 1), node_actor("b", 0))
    assert plan(A, B, existing=existing) == NodeActorPlan(
        start=(node_actor("b", 1),), keep=(node_actor("a", 0),), end=(node_actor("b", 0), node_actor("a", 1))
    )


def test_configs_contain_the_addresses_of_all_nodes_and_the_ports_of_ray() -> None:
    nodes = [node("a", ports=frozenset({7001, 7000})), node("b", gpus=8, accelerator="H100")]
    orders = configs_for([node_actor("a", 0), node_actor("b", 5)], nodes=nodes, settings=NodeActorSettings())
    assert orders[node_actor("a", 0)].peers == orders[node_actor("b", 5)].peers == {"10.0.0.10": 0, "10.0.0.11": 5}
    assert orders[node_actor("b", 5)].ignored_ports == (7000, 7001)
    assert (orders[node_actor("b", 5)].gpus, orders[node_actor("b", 5)].accelerator) == (8, "H100")
    assert (orders[node_actor("b", 5)].index, orders[node_actor("b", 5)].node_name) == (5, "b")


def test_an_address_shared_by_several_nodes_is_omitted() -> None:
    nodes = [node("a", address="::1"), node("b", address="::1"), node("c")]
    node_actors = [node_actor("a", 0), node_actor("b", 1), node_actor("c", 2)]
    orders = configs_for(node_actors, nodes=nodes, settings=NodeActorSettings())
    assert [order.peers for order in orders.values()] == [{}, {}, {}]  # a node needs no address of itself


def test_a_node_that_has_left_gets_no_config() -> None:
    assert list(configs_for([node_actor("a", 0), node_actor("b", 1)], nodes=[A], settings=NodeActorSettings())) == [
        node_actor("a", 0)
    ]
