"""Clusters onto GPUs: against every assignment there is, with and without equal links, and with copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.solvers import Limits, Solver, SolveStatus
from placement.arrays import Floats
from placement.exact import assigned, cluster_tokens
from placement.exact.assignment_model import OrderModel, ProductModel
from placement.exact.assignment_rows import least_tail_by_orders, least_tail_by_products
from placement.exact.exchange import Exchange, Held, exchange_times_s, tails_s
from tests.placement.exact.oracles import fastest_path_s, least_tail_s

LIMITS = Limits(time_limit_s=60.0)
TOKEN_BYTES = 8192.0


def links(gpus: int, *, nodes: int, inside: float = 400.0, between: float = 50.0) -> Floats:
    node = np.arange(gpus) * nodes // gpus
    return np.where(node[:, None] == node[None, :], inside, between)


def held_of(cluster_of_expert: list[list[int]], clusters: int) -> Held:
    held: Held = np.array(cluster_of_expert)[:, :, None] == np.arange(clusters)
    return held


def exchange_of(clustered: Held, routing: Floats, bandwidth: Floats, copies_of_gpu: int) -> Exchange:
    times_s = exchange_times_s(clustered, routing, token_bytes=TOKEN_BYTES, bandwidth_gb_per_s=bandwidth)
    return Exchange(times_s, clustered.sum(axis=1), copies_of_gpu, alike=False)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Held, Floats, Floats]:
    """Three GPUs, three layers, four experts in clusters of any size; links alike or not."""
    layers, experts, gpus = 3, 4, 3
    row = st.permutations([0, 1, 2, draw(st.integers(0, 2))])
    clustered = held_of([list(draw(row)) for _ in range(layers)], gpus)
    seed = draw(st.integers(0, 2**16))
    routing = np.random.default_rng(seed).integers(0, 1000, (layers - 1, experts, experts)).astype(np.float64)
    return clustered, routing, links(gpus, nodes=draw(st.sampled_from([1, 3]))) * draw(st.sampled_from([1.0, 0.1]))


@given(case=cases(), solver=st.sampled_from(list(Solver)), slowest=st.sampled_from([1.0, 3.0]))
@settings(max_examples=20, deadline=None)
def test_it_is_the_best_of_all_assignments(case: tuple[Held, Floats, Floats], solver: Solver, slowest: float) -> None:
    clustered, routing, bandwidth = case
    bandwidth[0, 1] = bandwidth[1, 0] = bandwidth.min() / slowest
    found = assigned(
        clustered,
        routing,
        token_bytes=TOKEN_BYTES,
        bandwidth_gb_per_s=bandwidth,
        limits=LIMITS,
        solver=solver,
        copies_of_gpu=5,
    )
    exchange = exchange_of(clustered, routing, bandwidth, 5)
    best_s = least_tail_s(exchange)
    assert found.proof.status is SolveStatus.OPTIMAL
    assert found.proof.value == pytest.approx(best_s, rel=5e-6)
    assert found.proof.bound <= best_s * (1 + 1e-6)
    assert tails_s(exchange, found.gpu_of_cluster).sum() == pytest.approx(found.proof.value)
    assert found.held(clustered).sum(axis=(0, 1)).max() <= 5


@given(case=cases())
@settings(max_examples=5, deadline=None)
def test_both_programs_agree(case: tuple[Held, Floats, Floats]) -> None:
    exchange = exchange_of(*case, 5)
    products = least_tail_by_products(ProductModel.of(exchange))
    orders = least_tail_by_orders(OrderModel.of(exchange))
    ends = [model.program.run(solver=Solver.HIGHS, limits=LIMITS) for model in (products, orders)]
    assert ends[0].bound == pytest.approx(ends[1].bound, rel=1e-5)
    assert tails_s(exchange, products.found()).sum() == pytest.approx(tails_s(exchange, orders.found()).sum(), rel=1e-5)


def test_the_shortest_path_agrees_where_memory_does_not_count() -> None:
    rng = np.random.default_rng(5)
    clustered = held_of([[0, 1, 2, 3]] * 4, 4)
    routing = rng.integers(0, 1000, (3, 4, 4)).astype(np.float64)
    bandwidth = links(4, nodes=2)
    found = assigned(clustered, routing, token_bytes=TOKEN_BYTES, bandwidth_gb_per_s=bandwidth, limits=LIMITS)
    assert found.proof.value == pytest.approx(fastest_path_s(exchange_of(clustered, routing, bandwidth, 4)), rel=5e-6)


def test_tokens_that_stay_together_change_no_gpu() -> None:
    """Expert e of a layer hands all its tokens to expert e + 1 of the next."""
    routing = np.array([np.roll(np.eye(3), 1, axis=1)] * 2) * 1000
    clustered = held_of([[0, 1, 2]] * 3, 3)
    found = assigned(clustered, routing, token_bytes=1.0, bandwidth_gb_per_s=links(3, nodes=1), limits=LIMITS)
    assert found.proof.value == 0
    assert found.gpu_of_cluster.tolist() == [[0, 1, 2], [2, 0, 1], [1, 2, 0]]


def test_a_copy_carries_its_share() -> None:
    both = np.array([[[True, True], [True, False], [False, True]], [[True, False], [True, False], [False, True]]])
    routing = np.array([[[0.0, 100, 0], [40, 0, 0], [0, 0, 10]]])
    assert cluster_tokens(both, routing).tolist() == [[[90.0, 0.0], [50.0, 10.0]]]


def test_equal_memory_forbids_what_would_be_fastest() -> None:
    """The large cluster of each layer hands its tokens to the large one of the next."""
    clustered = held_of([[0, 0, 0, 1]] * 2, 2)
    routing = np.array([np.diag([100.0, 100, 100, 10])])
    bandwidth = links(2, nodes=1)
    free = assigned(clustered, routing, token_bytes=1.0, bandwidth_gb_per_s=bandwidth, limits=LIMITS, copies_of_gpu=6)
    even = assigned(clustered, routing, token_bytes=1.0, bandwidth_gb_per_s=bandwidth, limits=LIMITS)
    assert free.proof.value == 0
    assert even.held(clustered).sum(axis=(0, 1)).tolist() == [4, 4]
    assert even.proof.value == pytest.approx(300 / 400e9)


def test_memory_that_nothing_fits_is_named() -> None:
    clustered = held_of([[0, 0, 0, 1]], 2)
    routing = np.zeros((0, 4, 4))
    with pytest.raises(RuleError, match="copies_of_gpu: no assignment keeps every GPU to 2 copies"):
        assigned(clustered, routing, token_bytes=1.0, bandwidth_gb_per_s=links(2, nodes=1), limits=LIMITS)


def test_a_struck_limit_leaves_a_simple_assignment_and_a_proven_bound() -> None:
    rng = np.random.default_rng(5)
    clustered = held_of([list(range(6))] * 6, 6)
    routing = rng.integers(0, 1000, (5, 6, 6)).astype(np.float64)
    found = assigned(
        clustered,
        routing,
        token_bytes=TOKEN_BYTES,
        bandwidth_gb_per_s=links(6, nodes=2),
        limits=Limits(time_limit_s=0.02),
    )
    assert found.proof.status is SolveStatus.FEASIBLE
    assert 0 <= found.proof.bound < found.proof.value


@pytest.mark.parametrize(
    ("routing", "bandwidth", "message"),
    [
        (np.zeros((2, 3, 3)), links(3, nodes=1), r"routing: must have the shape \(1, 3, 3\)"),
        (np.zeros((1, 3, 3)), links(2, nodes=1), "bandwidth_gb_per_s: must have the shape"),
        (np.full((1, 3, 3), np.nan), links(3, nodes=1), "routing: must be finite"),
        (np.zeros((1, 3, 3)), np.zeros((3, 3)), "bandwidth_gb_per_s: must be finite and above 0"),
    ],
)
def test_what_does_not_fit_is_named(routing: Floats, bandwidth: Floats, message: str) -> None:
    clustered = held_of([[0, 1, 2]] * 2, 3)
    with pytest.raises(RuleError, match=message):
        assigned(clustered, routing, token_bytes=1.0, bandwidth_gb_per_s=bandwidth, limits=LIMITS)
