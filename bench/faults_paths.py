"""Paths planned against the fractional optimum and against hashing, on 3-tier fat trees with 1,024 NICs.

Trees: 16-port switches with as many uplinks as nodes per leaf (1:1: 16 pods of 8 leaves), 2:1 (8 pods, 16 nodes a
leaf), and 128 nodes of 8 NICs with a leaf per rail.  Rings: 8 of 128 NICs, shuffled or in the order of the leaves (then
they hardly cross), or one per rail.  Dead: a share of all cables between switches, drawn at random.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from bench.harness import Row
from faults.path_planning import Plan, Traffic, TrafficJob, hashed, make_plan, planned, repair, traffic_of
from faults.path_planning.clos import Clos
from fleet.topology import Tier, Topology

HALF = 8  # of a switch's 16 ports
LINK_GB_PER_S = 50.0
DRAWS = 100
DRAWS_OF_EIGHT = 20  # connections per flow
SINGLES, SINGLE_SEED, REPAIRED = 60, 3, 6
LAME, LAME_SEED = (0.05, 0.3), 5  # of all spines


def run() -> list[Row]:
    rows = [_row(*case) for case in _cases()]
    return [*rows, *map(_singles, ("1:1", "2:1")), *map(_lame, LAME), *_repairs()]


def _cases() -> Iterator[tuple[str, str, float, int]]:
    for tree in ("1:1", "2:1", "rails"):
        for dead in (0.0, 0.01, 0.02, 0.05):
            for seed in range(3 if dead and tree != "rails" else 1):
                yield tree, "shuffled", dead, seed
        for dead in (0.0, 0.05):
            yield tree, "in order", dead, 0


def _row(tree: str, order: str, dead: float, seed: int) -> Row:
    traffic = _traffic(tree, order, dead, seed)
    began = time.process_time()
    plan = make_plan(traffic)
    spent_s = time.process_time() - began
    load, drawn = planned(plan), hashed(traffic, draws=DRAWS, seed=seed)
    many = hashed(traffic, draws=DRAWS_OF_EIGHT, seed=seed, connections=8)
    return {
        "tree": tree,
        "rings": order,
        "dead %": 100 * dead,
        "seed": seed,
        "hashed mean": drawn.mean,
        "hashed p99": drawn.p99,
        "hashed 8 connections mean": many.mean,
        "slowest ring planned %": 100 * load.slowest_ring,
        "slowest ring hashed %": 100 * drawn.slowest_ring_mean,
        **_of_plan(plan, load.greatest),
        "plan s": spent_s,
    }


def _of_plan(plan: Plan, greatest: float) -> Row:
    return {
        "fractional optimum": plan.bound.utilisation,
        "proof": plan.bound.proof,
        "planned": greatest,
        "planned / optimum": greatest / plan.bound.utilisation,
        "flows": len(plan.traffic.flows),
        "flows split": plan.split,
        "connections": len(plan.paths),
    }


def _singles(tree: str) -> Row:
    healthy = _traffic(tree, "shuffled", 0.0, 0)
    plans, spent_s = [], []
    for cable in random.Random(SINGLE_SEED).sample(_above_spines(healthy.clos), SINGLES):
        began = time.process_time()
        plans.append(make_plan(healthy.on(healthy.clos.without([cable]))))
        spent_s.append(time.process_time() - began)
    return {
        "tree": tree,
        "rings": f"the worst of {SINGLES} single cables of spines",
        "fractional optimum": max(plan.bound.utilisation for plan in plans),
        "planned": max(plan.greatest for plan in plans),
        "planned / optimum": max(plan.greatest / plan.bound.utilisation for plan in plans),
        "flows": len(healthy.flows),
        "flows split": max(plan.split for plan in plans),
        "connections": max(len(plan.paths) for plan in plans),
        "plan s": max(spent_s),
    }


def _lame(share: float) -> Row:
    healthy = _traffic("1:1", "shuffled", 0.0, 0)
    rng, cables = random.Random(LAME_SEED), defaultdict(list)
    for cable in _above_spines(healthy.clos):
        cables[healthy.clos.wires[cable].lower].append(cable)
    lame = rng.sample(sorted(cables), max(1, round(share * len(cables))))
    dead = [cable for spine in lame for cable in rng.sample(cables[spine], len(cables[spine]) // 2)]
    began = time.process_time()
    plan = make_plan(healthy.on(healthy.clos.without(dead)))
    return {
        "tree": "1:1",
        "rings": f"half of the cables of {share:.0%} of the spines",
        **_of_plan(plan, plan.greatest),
        "plan s": time.process_time() - began,
    }


def _above_spines(clos: Clos) -> list[int]:
    return [cable for cable, wire in enumerate(clos.wires) if clos.tiers[wire.lower] is Tier.SPINE]


def _repairs() -> Iterator[Row]:
    plan = make_plan(_traffic("1:1", "shuffled", 0.0, 0))
    spines = random.Random(SINGLE_SEED).sample(_above_spines(plan.traffic.clos), REPAIRED)
    for cable in (5, 700, 1500, *spines):
        began = time.process_time()
        repaired = repair(plan, [cable])
        spent_s = time.process_time() - began
        yield {
            "tree": "1:1",
            "rings": "after a cable died",
            **_of_plan(repaired.plan, planned(repaired.plan).greatest),
            "connections moved": repaired.moved,
            "connections opened": repaired.opened,
            "plan s": spent_s,
        }


def _traffic(tree: str, order: str, dead: float, seed: int) -> Traffic:
    topology = _rails() if tree == "rails" else _tree(hosts=HALF if tree == "1:1" else 2 * HALF)
    rng = random.Random(seed)
    names = list(topology.index.nodes)
    if order == "shuffled":
        rng.shuffle(names)
    if tree == "rails":
        document: dict[str, Any] = {"groups": [{"name": "data", "nodes": names}]}
    else:
        rings = [names[start : start + 128] for start in range(0, len(names), 128)]
        document = {"rings": [{"name": f"r{place}", "members": members} for place, members in enumerate(rings)]}
    traffic = traffic_of(TrafficJob.model_validate({"name": "bench", **document}), topology.index)
    wires = range(len(traffic.clos.wires))
    return traffic.on(traffic.clos.without(rng.sample(wires, round(len(wires) * dead))))


def _pods(pods: int) -> list[Row]:
    network: list[Row] = []
    for pod in range(pods):
        uplinks = [f"spine-{pod}-[0-{HALF - 1}]"]
        network.append(_switch(f"leaf-{pod}-[0-{HALF - 1}]", "leaf", uplinks))
        network += [_switch(f"spine-{pod}-{plane}", "spine", [f"core-{plane}-[0-{HALF - 1}]"]) for plane in range(HALF)]
    return [*network, *({"name": f"core-{plane}-[0-{HALF - 1}]", "tier": "core"} for plane in range(HALF))]


def _switch(name: str, tier: str, uplinks: list[str]) -> Row:
    return {"name": name, "tier": tier, "uplinks": uplinks, "link_gb_per_s": LINK_GB_PER_S}


def _tree(*, hosts: int) -> Topology:
    pods = 1024 // (HALF * hosts)
    nodes = [
        {
            "name": f"n-{pod}-{leaf}-[00-{hosts - 1}]",
            "leaves": [f"leaf-{pod}-{leaf}"],
            "nic_gb_per_s": LINK_GB_PER_S,
        }
        for pod in range(pods)
        for leaf in range(HALF)
    ]
    return _site(_pods(pods), nodes)


def _rails() -> Topology:
    """128 nodes of 8 NICs: in each of 16 pods 8 nodes, NIC r of all of them in leaf r."""
    nodes = [
        {
            "name": f"n-{pod}-[0-{HALF - 1}]",
            "leaves": [f"leaf-{pod}-[0-{HALF - 1}]"],
            "nic_gb_per_s": LINK_GB_PER_S,
        }
        for pod in range(16)
    ]
    return _site(_pods(16), nodes)


def _site(network: list[Row], nodes: list[Row]) -> Topology:
    return Topology.model_validate({"sites": [{"name": "bench", "network": network, "nodes": nodes}]})
