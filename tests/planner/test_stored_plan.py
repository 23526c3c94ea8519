"""A replay over a plan that was solved before has its mix and its routing, not those of a new solve."""

from typing import Any

import pytest

from fleet.errors import DocumentError
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.offers import builtin_prices
from planner import Plan, PlanRequest
from planner.stored_plan import PlanReplay, replay_plan
from tests.planner.requests import OFFERS, from_offers, solved

SLO = {"ttft_ms": {"p99": 1500}, "tpot_ms": {"p99": 60}}
REPLAY = {"hours": 0.05, "seed": 7}


def request(**changes: Any) -> dict[str, Any]:
    return from_offers(rate_rps=40, slo=SLO, **changes)


def replayed(body: dict[str, Any], plan: Plan, *, clock: Any = lambda: 0.0, **how: Any) -> PlanReplay:
    return replay_plan(
        PlanRequest.model_validate(body),
        plan,
        **({"hours": 0.05, "seed": 7, "time_limit_s": 60.0} | how),
        gpus=builtin_gpus(),
        models=builtin_models(),
        prices=builtin_prices(),
        clock_s=clock,
    )


@pytest.fixture(scope="module")
def sized() -> Plan:
    return solved(request() | {"replay": REPLAY})


def test_the_same_requests_give_the_proofs_of_the_plan(sized: Plan) -> None:
    found = replayed(request() | {"replay": REPLAY}, sized)
    assert found.proofs == sized.proofs
    assert (found.verified, found.is_cut, found.obstacle) == (True, False, None)


def test_other_requests_give_other_figures(sized: Plan) -> None:
    found = replayed(request() | {"replay": REPLAY}, sized, seed=8)
    assert found.proofs[0].slo_check.limits != sized.proofs[0].slo_check.limits


def test_a_mix_that_is_no_optimum_is_replayed_as_it_is() -> None:
    """A plan for a tenth of the rate cannot serve the request, and the replay shows that."""
    small = solved(request() | {"workloads": [request()["workloads"][0] | {"rate_rps": 4}]})
    found = replayed(request(), small)
    assert found.verified is False
    (proof,) = found.proofs
    assert proof.slo_check.broken or proof.slo_check.notes


def test_a_plan_without_a_mix_or_with_an_unknown_option_is_refused() -> None:
    scarce = [each | {"available": 0} for each in OFFERS]
    none = solved(request() | {"offers": scarce})
    with pytest.raises(DocumentError, match="no mix to replay"):
        replayed(request() | {"offers": scarce}, none)
    with pytest.raises(DocumentError, match="is no option of chat"):
        replayed(request() | {"offers": OFFERS[1:2]}, solved(request() | {"offers": OFFERS[2:]}))


def test_without_time_no_replay_begins(sized: Plan) -> None:
    moments = iter([0.0])
    found = replayed(request(), sized, clock=lambda: next(moments, 100.0))
    assert (found.verified, found.proofs, found.not_replayed, found.is_cut) == (None, (), ("chat",), True)
