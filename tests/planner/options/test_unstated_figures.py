"""GPUs without published power rating and host link: usable with given rates, else refused."""

import pytest

from fleet.errors import DocumentError
from tests.planner.requests import OFFERS, from_offers, given, offer, solved

TPU_OPTION = {"name": "tpu", "gpu": "TPU-v5e", "price_usd_per_h": 0.1, "max_rps": [[30, 10], [15, 6]]}


def test_options_with_given_rates_need_no_power_rating() -> None:
    plan = solved(given(options=[TPU_OPTION]))
    (entry,) = plan.allocation
    assert (entry.option, entry.power_w) == ("tpu", None)


def test_a_power_domain_refuses_an_option_without_a_power_rating() -> None:
    domain = {"name": "row-a", "limit_w": 10_000}
    with pytest.raises(DocumentError, match="no source states tdp_w of GPU 'TPU-v5e'; power domain row-a needs it"):
        solved(given(options=[TPU_OPTION]), power_domains=[domain])


def test_an_offer_of_a_gpu_without_power_rating_is_not_used() -> None:
    request = from_offers()
    tpu = offer("here/tpu", "TPU-v5e", 0.01)
    plan = solved(request | {"offers": [*OFFERS, tpu]})
    assert "TPU-v5e" not in {entry.gpu for entry in plan.allocation}
    assert plan.cost_usd_per_h == solved(request).cost_usd_per_h
    with pytest.raises(DocumentError, match=r"TPU-v5e: no source states its power and host link \(tdp_w"):
        solved(request | {"offers": [tpu]})
