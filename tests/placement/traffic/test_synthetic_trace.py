"""Generated traces: the requested loads, and the routing of the model."""

import numpy as np
import pytest

from fleet.documents import RuleError
from placement.arrays import Floats
from placement.traffic import Routing, generate_trace, residual
from placement.traffic.initial_partition import groups_of


def skewed(layers: int = 2, experts: int = 32) -> Floats:
    return np.random.default_rng(0).permuted(np.tile(np.arange(1.0, experts + 1) ** -0.5, (layers, 1)), axis=1)


@pytest.mark.parametrize("routing", [Routing(4), Routing(4, groups=8, active_groups=4)])
def test_loads_match_the_request(routing: Routing) -> None:
    loads = skewed()
    trace = generate_trace(loads, routing=routing, count=4000, rng=np.random.default_rng(1))
    assert trace.experts.shape == (4000, 2, 4)
    assert residual(trace, loads).max() < 0.02
    assert (np.diff(np.sort(trace.experts, axis=2), axis=2) > 0).all()


def test_no_token_uses_more_groups_than_allowed() -> None:
    trace = generate_trace(
        skewed(), routing=Routing(6, groups=8, active_groups=3), count=800, rng=np.random.default_rng(1)
    )
    for layer in range(2):
        experts = trace.experts[:, layer]
        assert max(len(set((token // 4).tolist())) for token in experts) == 3
        assert groups_of(experts, experts=32) == 8


def test_topics_correlate_experts() -> None:
    def pairs(strength: float) -> float:
        loads = np.ones((1, 32))
        made = generate_trace(
            loads, routing=Routing(4), count=4000, rng=np.random.default_rng(2), strength=strength
        ).experts[:, 0]
        used = np.zeros((len(made), 32))
        np.put_along_axis(used, made.astype(np.int64), 1.0, axis=1)
        together = used.T @ used
        np.fill_diagonal(together, 0.0)
        return float((together**2).sum())

    assert pairs(1.0) > 1.1 * pairs(0.0)


def test_equal_seeds_give_equal_traces() -> None:
    one, other = (
        generate_trace(skewed(), routing=Routing(2), count=100, rng=np.random.default_rng(3)).experts for _ in range(2)
    )
    assert (one == other).all()


@pytest.mark.parametrize(
    ("routing", "count", "field"),
    [
        (Routing(2, groups=5), 10, "groups"),
        (Routing(2, groups=4, active_groups=5), 10, "active_groups"),
        (Routing(9, groups=4, active_groups=1), 10, "active"),
        (Routing(2), 0, "count"),
    ],
)
def test_invalid_routing_is_refused(routing: Routing, count: int, field: str) -> None:
    with pytest.raises(RuleError, match=field):
        generate_trace(skewed(), routing=routing, count=count, rng=np.random.default_rng(0))
