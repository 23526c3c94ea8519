"""Names in the rules of a request: an unknown name is an error, because its rule would have no effect."""

from typing import Any

import pytest

from fleet.documents import Violation
from fleet.offers import Offer
from planner import PlanRequest
from planner.options.rule_scopes import rule_violations
from tests.planner.requests import from_offers, given, offer

OFFERS = [
    offer("a/east", "L4", 0.8, provider="acme", region="us-east-1"),
    offer("b/west", "L4", 0.8, provider="borealis", region="eu-west-4"),
]


def violations(**rules: Any) -> list[Violation]:
    request = PlanRequest.model_validate({**from_offers(), "offers": OFFERS, **rules})
    return list(rule_violations(request, request.offers or ()))


class TestPlaces:
    @pytest.mark.parametrize(
        ("field", "name", "message"),
        [
            ("region", "us-east-2", "no offer is of region 'us-east-2'; nearest: us-east-1"),
            ("region", "atlantis", "no offer is of region 'atlantis', expected one of eu-west-4, us-east-1"),
            ("provider", "acne", "no offer is of provider 'acne'; nearest: acme"),
        ],
    )
    def test_a_quota_on_a_place_without_offers_is_a_violation(self, field: str, name: str, message: str) -> None:
        assert violations(quotas=[{"name": "q", "gpus": 1, field: name}]) == [(("quotas", 0, field), message)]

    def test_carbon_of_a_region_without_offers_is_a_violation(self) -> None:
        carbon = {"default_g_per_kwh": 400, "regions_g_per_kwh": {"us-east-1": 300, "eu-west-1": 20}}
        message = "no offer is of region 'eu-west-1'; nearest: eu-west-4, us-east-1"
        assert violations(carbon=carbon)[0] == (("carbon", "regions_g_per_kwh", "eu-west-1"), message)
        assert len(violations(carbon=carbon)) == 1

    def test_places_with_offers_pass(self) -> None:
        carbon = {"default_g_per_kwh": 400, "regions_g_per_kwh": {"us-east-1": 300}}
        quota = {"name": "q", "gpus": 1, "provider": "borealis", "region": "eu-west-4"}
        assert violations(quotas=[quota], carbon=carbon) == []

    def test_without_offers_every_place_is_a_violation(self) -> None:
        request = PlanRequest.model_validate({**given(), "quotas": [{"name": "q", "gpus": 1, "region": "here"}]})
        ((_, message),) = rule_violations(request, list[Offer]())
        assert message == "no offer is of region 'here', expected one of none"
