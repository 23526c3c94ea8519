"""A validated plan: its requests are replayed through the planned fleet, with headroom where required."""

from typing import Any

import pytest

from planner import Plan
from tests.planner.requests import from_offers, given, solved


def traced(*, rate_per_s: float, requests: int = 1500) -> str:
    """Requests at even gaps in four sizes."""
    sizes = [(200, 100), (400, 250), (100, 50), (480, 300)]
    rows = (f"{n / rate_per_s:.4f},{sizes[n % 4][0]},{sizes[n % 4][1]}" for n in range(requests))
    return "\n".join(["time,input_tokens,output_tokens", *rows])


def request(**changes: Any) -> dict[str, Any]:
    slo = {"ttft_ms": {"p99": 1500}, "tpot_ms": {"p99": 60}}
    return from_offers(rate_rps=40, slo=slo, **changes)


@pytest.fixture(scope="module")
def sized() -> Plan:
    return solved({**request(), "replay": {"hours": 0.1}})


class TestSized:
    def test_every_limit_holds_in_the_replay(self, sized: Plan) -> None:
        assert sized.verified is True
        (proof,) = sized.proofs
        assert proof.traffic == "drawn"
        assert proof.requests == pytest.approx(40 * 360, rel=0.05)
        assert {str(limit.metric) for limit in proof.slo_check.limits} == {"ttft_ms", "tpot_ms"}
        assert all(
            limit.measured_ms is not None and limit.measured_ms <= limit.limit_ms for limit in proof.slo_check.limits
        )

    def test_the_planned_utilisation_is_reported(self, sized: Plan) -> None:
        (proof,) = sized.proofs
        again = solved({**request(), "utilisation": min(1.0, proof.utilisation)})
        if proof.utilisation <= 1:
            assert again.cost_usd_per_h == sized.cost_usd_per_h

    def test_the_validation_is_explained(self, sized: Plan) -> None:
        assert any("every limit holds in a replay of" in line for line in sized.explanation)
        assert any(line.startswith("chat: p99 TTFT: ") for line in sized.explanation)
        assert any(" tight" in line for line in sized.explanation)

    def test_the_same_request_gets_the_same_proof(self, sized: Plan) -> None:
        again = solved({**request(), "replay": {"hours": 0.1}})
        assert (again.proofs, again.allocation) == (sized.proofs, sized.allocation)


class TestValidatedOnly:
    def test_a_plan_may_be_validated_without_resizing(self) -> None:
        plain = solved(request())
        validated = solved({**request(), "replay": {"hours": 0.1, "size": False}})
        assert plain.verified is None
        assert validated.allocation == plain.allocation
        assert validated.proofs[0].utilisation == 1.0

    def test_a_plan_with_spare_replicas_is_not_tight(self, sized: Plan) -> None:
        found = sized.proofs[0].tightness
        assert found is not None
        assert found.tight
        assert not found.spare
        wide = solved({**request(), "utilisation": 0.5, "replay": {"hours": 0.1, "size": False}}).proofs[0].tightness
        assert wide is not None
        assert not wide.tight
        assert wide.spare

    def test_bursty_traffic_costs_at_least_as_much_as_even_traffic(self) -> None:
        bursty = solved({**request(arrival_cv=3.0), "replay": {"hours": 0.1}})
        even = solved({**request(arrival_cv=0.5), "replay": {"hours": 0.1}})
        assert bursty.verified
        assert even.verified
        assert (bursty.cost_usd_per_h or 0) >= (even.cost_usd_per_h or 0)


class TestTrace:
    def test_a_trace_is_replayed_by_default(self) -> None:
        trace = {"trace_csv": traced(rate_per_s=25)}
        plan = solved(from_offers(rate_rps=None, buckets=trace, slo={"tpot_ms": {"p99": 60}}))
        (proof,) = plan.proofs
        assert (proof.traffic, plan.verified) == ("trace", True)

    def test_a_trace_provides_the_demand_series(self) -> None:
        trace = {"trace_csv": traced(rate_per_s=25)}
        slo = {"tpot_ms": {"p99": 60}}
        own = solved(from_offers(rate_rps=None, buckets=trace, slo=slo))
        given_rate = solved(from_offers(rate_rps=25, buckets=trace, slo=slo))
        assert own.cost_usd_per_h == given_rate.cost_usd_per_h


class TestUnprovable:
    def test_a_plan_with_given_rates_is_not_replayed_and_reports_it(self) -> None:
        plan = solved({**given(), "replay": {}})
        assert plan.verified is None
        assert any(line.startswith("not replayed: ") and "has given rates" in line for line in plan.explanation)

    def test_an_infeasible_plan_has_no_proof(self) -> None:
        plan = solved({**request(), "policy": {"budget_usd_per_h": 0.01}, "replay": {}})
        assert (plan.cost_usd_per_h, plan.verified, plan.proofs) == (None, None, ())
