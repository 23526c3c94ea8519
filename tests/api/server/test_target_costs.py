"""Tests of the cost of targets at the prices of their plans, and of the metrics of expert maps and workloads."""

from datetime import UTC, datetime

import pytest

from api.schemas.expert_maps import ExpertMapPhase, ExpertMapStatus
from api.schemas.targets import Phase, TargetStatus
from api.server.expert_map_metrics import expert_map_metrics
from api.server.planning_loop_metrics import ReportedLoop, planning_loop_metrics
from api.server.target_costs import ReplicaPrice, TargetReplicas, cost_metrics, cost_usd_per_h, replica_prices
from tests.helm.loop_reports import loop_request, loop_spec, loop_status
from tests.planner.requests import solved

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PRICES = [
    ReplicaPrice("chat", "H100", gpus_per_replica=1, count=3, usd_per_h=3.0),
    ReplicaPrice("chat", "H100", gpus_per_replica=2, count=1, usd_per_h=7.0),
    ReplicaPrice("code", "L4", gpus_per_replica=1, count=1, usd_per_h=0.5),
]


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ({"H100": 4}, 16.0),  # (3 x 3 + 7) / 4 per replica
        ({"H100/x2": 2}, 14.0),
        ({"H100/x1@0.7": 2}, 6.0),
        ({"L4": 1}, None),  # of another workload
        ({"L4": 0}, 0.0),
    ],
)
def test_replicas_cost_the_mean_price_of_the_allocations_of_their_part(
    replicas: dict[str, int], expected: float | None
) -> None:
    assert cost_usd_per_h(PRICES, workload="chat", replicas=replicas) == expected


def test_the_planned_replicas_cost_what_the_plan_costs() -> None:
    made = solved(loop_request().model_dump(mode="json", exclude_defaults=True))
    replicas = {entry.gpu: entry.count for entry in made.allocation}
    assert cost_usd_per_h(replica_prices(made), workload="chat", replicas=replicas) == made.cost_usd_per_h


def test_a_target_without_prices_has_no_cost() -> None:
    replicas = {"H100": 2}
    targets = [
        TargetReplicas("a", "chat", PRICES, {"H100": 4}, replicas),
        TargetReplicas("b", "chat", (), replicas, {}),
    ]
    (cost,) = cost_metrics(targets)
    assert {tuple(sample.labels.values()): sample.value for sample in cost.samples} == {
        ("a", "chat", "planned"): 16.0,
        ("a", "chat", "applied"): 8.0,
    }


def test_expert_maps_count_replicas_by_state() -> None:
    found = ExpertMapStatus(placement_id="p", phase=ExpertMapPhase.ROLLING, replicas=3, loaded=1, waiting=2)
    status = TargetStatus(phase=Phase.APPLYING, observed_at=NOW, expert_maps={"H100": found})
    replicas, phase = expert_map_metrics([("chat", status)])
    assert {sample.labels["state"]: sample.value for sample in replicas.samples} == {
        "loaded": 1,
        "waiting": 2,
        "refused": 0,
    }
    assert [sample.labels["phase"] for sample in phase.samples if sample.value] == ["rolling"]


def test_observed_latencies_are_exported_next_to_the_limits_of_the_slo() -> None:
    loop = ReportedLoop(name="chat", status=loop_status(at=NOW), reported_at=NOW, spec=loop_spec())
    families = {family.name: family for family in planning_loop_metrics([loop], NOW)}
    observed, limits = (
        {(each.labels["kind"], each.labels["statistic"]): each.value for each in families[name].samples}
        for name in ("fleetwright_workload_latency_seconds", "fleetwright_workload_latency_limit_seconds")
    )
    assert limits == {("ttft", "p99"): 2.0, ("tpot", "p50"): 0.05}
    assert (observed["ttft", "p99"], observed["tpot", "p50"]) == (1.7, 0.03)
    tokens = families["fleetwright_workload_tokens_per_second"].samples
    assert [each.value for each in tokens] == pytest.approx([5050.0, 5050.0])
