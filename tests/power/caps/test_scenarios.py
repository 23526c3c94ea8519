"""Every feed stays within its limit, whichever 2N feeds lose a side."""

from itertools import product
from random import Random

import pytest

from fleet.solvers import Limits, Solver
from power.caps import Terms
from power.caps.power_model import peak_w
from power.caps.scenarios import Scenarios
from power.caps.solving import solve
from power.tree import PowerTree
from tests.power.trees import group

QUICK = Limits(time_limit_s=30.0, relative_gap=2e-2)
PDUS = ("pdu-1", "pdu-2")


def hall(seed: int) -> PowerTree:
    """Two 2N PDUs, each with two rows, on a feed with one side."""
    draw = Random(seed)
    load = {"p50": draw.uniform(0.3, 0.7), "p99": 0.85, "prompt_share": draw.uniform(0.05, 0.4)}
    pdu_w, row_w = draw.uniform(50e3, 60e3), draw.uniform(35e3, 60e3)
    two_sides = {"redundancy": "2N", "ride_through_share": 1.5}
    feeds = [
        {"name": "top", "kind": "ups", "limit_w": draw.uniform(105e3, 140e3), "oversubscription": 10},
        {"name": "pdu-[1-2]", "kind": "pdu", "parent": "top", "limit_w": pdu_w, "oversubscription": 10, **two_sides},
        *(
            {"name": f"row-[{a}-{a + 1}]", "kind": "row", "parent": pdu, "limit_w": row_w, "oversubscription": 10}
            for a, pdu in zip((1, 3), PDUS, strict=True)
        ),
    ]
    groups = [group("batch", "row-[1-4]", load=load), group("chat", "row-[1-4]", priority="high", load=load)]
    return PowerTree.model_validate({"periods": 1, "feeds": feeds, "groups": groups})


@pytest.mark.parametrize("seed", [0, 2, 7, 11])
def test_every_feed_stays_within_its_limit_for_any_lost_sides(seed: int) -> None:
    tree, terms = hall(seed), Terms()
    hierarchy, scenarios = tree.hierarchy, Scenarios(tree, terms)
    both = scenarios.both_sides(0)
    before = solve(both, solver=Solver.HIGHS, limits=QUICK)
    assert before.choice is not None
    one_side = scenarios.one_side(0, both, before.choice)
    assert one_side is not None
    after = solve(one_side, solver=Solver.HIGHS, limits=QUICK)
    assert after.choice is not None
    for lost in product((False, True), repeat=2):
        lost_pdus = {pdu for pdu, is_lost in zip(PDUS, lost, strict=True) if is_lost}
        draws = [
            (
                one_side.options[g][after.choice[g]]
                if lost_pdus & set(one.feeds)
                else both.options[g][before.choice[g]]
            ).draw
            for g, one in enumerate(hierarchy.classes)
        ]
        for name, members in hierarchy.below.items():
            feed = hierarchy.feeds[name]
            on_one = lost_pdus & set(hierarchy.upwards(name))
            limit_w = feed.may_draw_on_one_side_w(0) if on_one else feed.may_draw_w(0)
            assert limit_w is not None
            assert peak_w((draws[g] for g in members), sigmas=terms.sigmas) <= limit_w * (1 + 2e-6)
