"""Plans: optimal on healthy trees, within 2 % of the proven bound on damaged ones, and never over a dead cable."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faults.path_planning.plan as plan_module
from faults.path_planning import Plan, Traffic, make_plan, planned, repair
from faults.path_planning.assignment import Assignment, directed
from faults.path_planning.bound import cut_bound, fractional_optimum
from faults.path_planning.clos import Clos, Routes
from faults.path_planning.plan import _divided, _Trial, first_count
from fleet.documents import RuleError
from fleet.topology import Tier
from tests.faults.path_planning.trees import job, killed, tree


def check_paths(plan: Plan) -> None:
    """Each path is a live route from the sender's leaf to the receiver's, and a flow's connections carry all of it."""
    clos = plan.traffic.clos
    carried = dict.fromkeys(range(len(plan.traffic.flows)), 0.0)
    for part, path in plan.paths.items():
        carried[part.flow] += part.gb_per_s
        at = part.source
        for link in path:
            wire = clos.wires[link // 2]
            assert link // 2 not in clos.dead
            assert at == (wire.upper if link % 2 else wire.lower)
            at = wire.lower if link % 2 else wire.upper
        assert at == part.target
        ways = [link % 2 for link in path]
        assert ways == sorted(ways)
    assert all(gb_per_s == pytest.approx(plan.traffic.flows[flow].gb_per_s) for flow, gb_per_s in carried.items())


@settings(max_examples=8)
@given(
    pods=st.integers(1, 3),
    width=st.integers(2, 4),
    over=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 1000),
    parallel=st.integers(1, 2),
)
def test_a_healthy_tree_is_loaded_within_two_per_cent_of_its_bound(
    pods: int, width: int, over: int, seed: int, parallel: int
) -> None:
    traffic = job(tree(pods=pods, width=width, hosts=width * over * parallel, parallel=parallel), seed=seed)
    plan = make_plan(traffic)
    check_paths(plan)
    load = planned(plan)
    assert plan.bound.utilisation - 1e-9 <= load.greatest <= 1.02 * plan.bound.utilisation + 1e-9
    if over == 1:
        assert plan.split == 0


@pytest.mark.parametrize(("share", "seed"), [(0.03, 0), (0.03, 1), (0.06, 0)])
def test_dead_cables_cost_at_most_two_per_cent_over_the_bound(share: float, seed: int) -> None:
    traffic = killed(job(tree(pods=4, width=8, hosts=8), seed=seed), share, seed)
    plan = make_plan(traffic)
    check_paths(plan)
    assert planned(plan).greatest <= 1.02 * plan.bound.utilisation + 1e-9
    assert plan.bound.utilisation > 1


@pytest.mark.parametrize("seed", range(6))
def test_a_dead_cable_above_a_spine_costs_nothing_when_its_pod_has_a_spare(seed: int) -> None:
    traffic = job(tree(pods=4, width=8, hosts=8), seed=seed)
    spines = [wire for wire, ends in enumerate(traffic.clos.wires) if traffic.clos.tiers[ends.lower] is Tier.SPINE]
    dead = traffic.on(traffic.clos.without([spines[41 * seed]]))
    plan = make_plan(dead)
    check_paths(plan)
    assert plan.bound.utilisation == pytest.approx(1.0)
    assert plan.greatest == pytest.approx(1.0)
    assert plan.split == 0
    repaired = repair(make_plan(traffic), [spines[41 * seed]])
    check_paths(repaired.plan)
    assert planned(repaired.plan).greatest <= 1.02


def test_parts_are_spread_over_spines_by_onward_capacity() -> None:
    """A spine has lost half of its cables to cores, and its pod has no spare ones."""
    traffic = job(tree(pods=6, width=4, hosts=4), seed=1)
    wires, tiers = traffic.clos.wires, traffic.clos.tiers
    degraded = next(wire.lower for wire in wires if tiers[wire.lower] is Tier.SPINE)
    broken = traffic.on(traffic.clos.without([cable for cable, wire in enumerate(wires) if wire.lower == degraded][:2]))
    limit = 1.134  # 17 parts of 15 on a cable
    parts = _divided(broken, range(len(broken.flows)), 15)
    left = {}
    for fair in (True, False):
        assignment = Assignment(broken.clos, Routes(broken.clos)).copy(fair=fair)
        assert assignment.fit_together(parts, limit, fair=fair)
        left[fair] = len(assignment.place(parts, limit))
        plan = Plan(broken, assignment.paths, cut_bound(broken))
        assert plan.greatest <= limit + 1e-9
    assert left[True] == 0 < left[False]


def test_only_flows_that_do_not_fit_are_split() -> None:
    traffic = job(tree(pods=1, width=8, hosts=8), seed=1)
    one = traffic.on(traffic.clos.without([0]))
    plan = make_plan(one)
    assert planned(plan).greatest == pytest.approx(8 / 7)
    assert plan.split <= 3
    assert len(plan.paths) <= len(traffic.flows) + 3 * 6


def test_a_job_that_allows_no_split_gets_whole_flows() -> None:
    traffic = job(tree(pods=1, width=4, hosts=4), seed=1, most_connections=1)
    plan = make_plan(traffic.on(traffic.clos.without([0])))
    check_paths(plan)
    assert plan.split == 0
    assert planned(plan).greatest == pytest.approx(2.0)


@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_both_ports_of_a_bonded_nic_carry_equal_load(seed: int) -> None:
    traffic = job(tree(pods=2, width=4, hosts=4, ports=2), seed=seed, bonds=[[0, 1]])
    plan = make_plan(traffic)
    check_paths(plan)
    load = planned(plan)
    assert load.by_tier["port out"] == load.by_tier["port in"] == pytest.approx(1.0)
    assert load.greatest == pytest.approx(max(1.0, plan.bound.utilisation))
    assert all(first_count(traffic, flow) == 2 for flow in range(len(traffic.flows)))


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_dead_cable_keeps_both_ports_of_a_bonded_nic_equally_loaded(parallel: int) -> None:
    traffic = job(tree(pods=2, width=4, hosts=4 * parallel, ports=2, parallel=parallel), seed=1, bonds=[[0, 1]])
    traffic = traffic.on(traffic.clos.without([0]))
    plan = make_plan(traffic)
    check_paths(plan)
    assert plan.bound.utilisation == pytest.approx(fractional_optimum(traffic, Routes(traffic.clos)).utilisation)
    assert planned(plan).greatest <= 1.02 * plan.bound.utilisation
    assert planned(plan).by_tier["port out"] == planned(plan).by_tier["port in"] == pytest.approx(1.0)
    assert plan.split <= 4


def test_all_flows_are_split_when_parts_do_not_fit_beside_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        plan_module, "_split", lambda assignment, _traffic, flows, _limit, **_: _Trial(assignment, list(flows))
    )
    traffic = job(tree(pods=2, width=4, hosts=4), seed=1)
    plan = make_plan(traffic.on(traffic.clos.without([0])))
    check_paths(plan)
    assert plan.split == len(traffic.flows)
    assert len(plan.paths) == 3 * len(traffic.flows)
    assert planned(plan).greatest == pytest.approx(plan.bound.utilisation) == pytest.approx(4 / 3)


def test_unequal_port_counts_are_paired_evenly() -> None:
    traffic = job(tree(pods=1, width=6, hosts=1, ports=2), bonds=[[0, 1]])
    three = replace(traffic.nics[1], leaves=(2, 3, 4))
    traffic = replace(traffic, nics=(traffic.nics[0], three, traffic.nics[2]))
    flow = next(flow for flow in traffic.flows if (flow.source, flow.target) == (0, 1))
    assert traffic.ports(flow) == len(set(traffic.port_pairs(flow))) == 6


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), share=st.sampled_from([0.0, 0.1, 0.2]))
def test_the_linear_program_bound_lies_between_the_cut_bound_and_a_plan(seed: int, share: float) -> None:
    traffic = killed(job(tree(pods=2, width=4, hosts=4), seed=seed, most_connections=4), share, seed)
    try:
        plan = make_plan(traffic)
    except RuleError:
        return
    check_paths(plan)
    bound = fractional_optimum(traffic, Routes(traffic.clos))
    assert cut_bound(traffic).utilisation <= bound.utilisation + 1e-9
    assert bound.utilisation <= planned(plan).greatest + 1e-9


def test_the_linear_program_finds_a_limit_that_no_single_cut_finds() -> None:
    # Three leaves cannot use the spines that their targets have lost: each pair has one common spine left.
    traffic = job(tree(pods=1, width=2, hosts=2), nic_share=0.5)
    lost = [traffic.clos.every[traffic.clos.number["l0-0"], traffic.clos.number["s0-0"]][0]]
    traffic = traffic.on(traffic.clos.without(lost))
    bound = fractional_optimum(traffic, Routes(traffic.clos))
    assert bound.utilisation >= cut_bound(traffic).utilisation
    assert bound.utilisation == pytest.approx(least_by_search(traffic), rel=0.02)


def least_by_search(traffic: Traffic, steps: int = 20) -> float:
    """The maximum utilisation of the best division of each flow into `steps` equal parts over its routes."""
    clos, routes = traffic.clos, Routes(traffic.clos)
    options = []
    for flow in traffic.flows:
        source, target = traffic.nics[flow.source].leaves[0], traffic.nics[flow.target].leaves[0]
        ways = [list(directed(hops)) for hops in routes.ways(source, target)]
        assert len(ways) <= 2
        shares = range(steps + 1) if len(ways) == 2 else (steps,)
        options.append([[(ways[0], share), (ways[-1], steps - share)] for share in shares])
    best = 10.0
    for choice in product(*options):
        load: dict[object, float] = {}
        for flow, division in zip(traffic.flows, choice, strict=True):
            for way, share in division:
                for step in way:
                    load[step] = load.get(step, 0.0) + flow.gb_per_s * share / steps
        best = min(best, max((value / _capacity(clos, step) for step, value in load.items()), default=0.0))
    return max(best, cut_ports(traffic))


def _capacity(clos: Clos, step: object) -> float:
    assert isinstance(step, tuple)
    return sum(clos.wires[cable].gb_per_s for cable in clos.trunks[step[0]])


def cut_ports(traffic: Traffic) -> float:
    """Each NIC sends one flow."""
    return max(flow.gb_per_s / traffic.nics[flow.source].port_gb_per_s for flow in traffic.flows)


def test_a_repair_moves_few_flows() -> None:
    plan = make_plan(job(tree(pods=4, width=8, hosts=8), seed=3))
    repaired = repair(plan, [7])
    check_paths(repaired.plan)
    assert planned(repaired.plan).greatest <= 1.02 * repaired.plan.bound.utilisation
    assert 0 < repaired.moved <= 12
    assert repaired.opened <= 40
    assert repaired.closed == 0


def test_disconnected_leaves_are_refused_by_name() -> None:
    traffic = job(tree(pods=1, width=2, hosts=1))
    gone = [cable for cable, wire in enumerate(traffic.clos.wires) if traffic.clos.names[wire.lower] == "l0-0"]
    with pytest.raises(RuleError, match="there is no live path from l0-0 to l0-1"):
        make_plan(traffic.on(traffic.clos.without(gone)))
