"""Offers: the shipped sheet, and the rules for a user's sheet."""

from datetime import date
from math import log
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import parse_document, read_model, write_model
from fleet.errors import DocumentError, UnknownNameError
from fleet.gpus import builtin_gpus, require_known_gpus, unknown_gpus
from fleet.offers import Market, Offer, PriceSheet, builtin_prices

ROW = {
    "id": "acme/eu-1/h100",
    "provider": "acme",
    "region": "eu-1",
    "market": "on-demand",
    "gpu": "H100-SXM",
    "gpus_per_instance": 8,
    "price_usd_per_h": 16.0,
    "as_of": "2026-11-01",
    "source": "acme's price list",
}


def read(*rows: dict[str, Any]) -> PriceSheet:
    return read_model(parse_document(yaml.safe_dump({"offers": list(rows)}), name="offers.yaml"), PriceSheet)


def problems(*rows: dict[str, Any]) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        read(*rows)
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


class TestBuiltinPrices:
    sheet = builtin_prices()

    def test_the_sheet_covers_every_market_and_many_providers_and_gpus(self) -> None:
        assert {offer.market for offer in self.sheet.offers} == set(Market)
        assert len({offer.provider for offer in self.sheet.offers}) >= 8
        assert len({offer.gpu for offer in self.sheet.offers}) >= 15
        assert len({offer.region for offer in self.sheet.offers}) >= 4

    def test_every_gpu_has_its_catalogue_name(self) -> None:
        gpus = builtin_gpus()
        assert [gpus.get(offer.gpu).name for offer in self.sheet.offers] == [offer.gpu for offer in self.sheet.offers]

    def test_every_row_has_a_date_a_source_and_a_plausible_price(self) -> None:
        for offer in self.sheet.offers:
            assert date(2025, 1, 1) <= offer.as_of <= date(2026, 11, 30)
            assert offer.source
            assert 0.1 < offer.price_usd_per_gpu_h < 15

    def test_spot_is_cheaper_than_on_demand_where_both_are_listed(self) -> None:
        on_demand = {(o.provider, o.region, o.instance, o.gpu): o for o in self.sheet.offers if o.market == "on-demand"}
        pairs = [
            (offer, on_demand[key])
            for offer in self.sheet.offers
            if offer.market is not Market.ON_DEMAND
            and (key := (offer.provider, offer.region, offer.instance, offer.gpu)) in on_demand
        ]
        assert len(pairs) >= 10
        assert all(cheap.price_usd_per_h < dear.price_usd_per_h for cheap, dear in pairs)

    def test_the_interruption_rate_matches_the_monthly_share_of_its_note(self) -> None:
        (offer,) = (offer for offer in self.sheet.offers if offer.interruption_rate_per_h is not None)
        assert offer.interruption_rate_per_h == pytest.approx(-log(1 - 0.10) / 730, rel=0.01)

    def test_the_price_of_the_owned_row_matches_the_depreciation_of_its_note(self) -> None:
        (offer,) = (offer for offer in self.sheet.offers if offer.market is Market.OWNED)
        assert offer.price_usd_per_h == pytest.approx(400_000 / 43_800, rel=0.001)

    def test_the_shipped_sheet_is_read_once(self) -> None:
        assert builtin_prices() is self.sheet


class TestSheet:
    def test_the_price_is_per_instance(self) -> None:
        assert read(ROW).offers[0].price_usd_per_gpu_h == 2.0

    def test_an_offer_is_found_by_its_id(self) -> None:
        assert read(ROW).get("acme/eu-1/h100").provider == "acme"
        with pytest.raises(UnknownNameError, match="unknown offer 'acme/eu-1/h10'; nearest: acme/eu-1/h100"):
            read(ROW).get("acme/eu-1/h10")

    def test_an_empty_sheet_is_valid(self) -> None:
        assert read().offers == ()

    def test_a_duplicate_id_is_refused(self) -> None:
        assert problems(ROW, {**ROW, "price_usd_per_h": 9.0}) == [
            "offers[1].id: must be unique, but 'acme/eu-1/h100' is already offers[0]"
        ]

    @pytest.mark.parametrize(
        ("available", "quota", "limit"), [(None, None, None), (4, None, 4), (None, 3, 3), (4, 3, 3), (0, 3, 0)]
    )
    def test_the_limit_is_the_lower_of_available_and_quota(
        self, available: int | None, quota: int | None, limit: int | None
    ) -> None:
        assert read({**ROW, "available": available, "quota": quota}).offers[0].limit == limit


class TestRefusedRows:
    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"market": "spott"}, "market: input should be 'on-demand', 'spot', 'reserved' or 'owned', got 'spott'"),
            ({"price_usd_per_h": -1}, "price_usd_per_h: input should be greater than or equal to 0, got -1"),
            ({"price_usd_per_h": float("nan")}, "price_usd_per_h: expected a finite number, got nan"),
            ({"price_usd_per_h": "16"}, "price_usd_per_h: expected a number, got '16'"),
            ({"price_usd_per_h": 0}, "price_usd_per_h: must be more than 0 on the on-demand market"),
            ({"gpus_per_instance": 0}, "gpus_per_instance: input should be greater than or equal to 1, got 0"),
            ({"available": -1}, "available: input should be greater than or equal to 0, got -1"),
            ({"quota": 1.5}, "quota: expected a whole number, got 1.5"),
            (
                {"interruption_rate_per_h": 0.1},
                "interruption_rate_per_h: only spot is interrupted, leave it out on the",
            ),
            (
                {"commitment_h": 8760},
                "commitment_h: only reserved is committed to, leave it out on the on-demand market",
            ),
            (
                {"market": "owned"},
                "available: is required on the owned market: how many instances there are, 0 or more",
            ),
            ({"as_of": "2014-12-31"}, "as_of: input should be greater than or equal to 2015-01-01, got '2014-12-31'"),
            ({"as_of": 20261101}, "as_of: "),
            ({"id": "ACME"}, "id: string should match pattern"),
            ({"source": ""}, "source: string should have at least 1 character"),
            ({"price": 3}, "price: is not a known field"),
        ],
    )
    def test_an_invalid_field_is_reported_by_name(self, change: dict[str, Any], problem: str) -> None:
        (found,) = problems({**ROW, **change})
        assert found.startswith(f"offers[0].{problem}")

    @pytest.mark.parametrize("field", [field for field in ROW if field != "gpus_per_instance"])
    def test_a_missing_field_is_reported_by_name(self, field: str) -> None:
        assert problems({key: value for key, value in ROW.items() if key != field}) == [
            f"offers[0].{field}: is required"
        ]

    @pytest.mark.parametrize("market", ["reserved", "owned"])
    def test_reserved_and_owned_instances_may_cost_nothing(self, market: str) -> None:
        assert read({**ROW, "market": market, "price_usd_per_h": 0, "available": 4}).offers[0].price_usd_per_h == 0


class TestGpuNames:
    def test_names_and_aliases_of_the_catalogue_are_known_gpus(self) -> None:
        sheet = read(ROW, {**ROW, "id": "alias", "gpu": "NVIDIA-H100-80GB-HBM3"})
        assert list(unknown_gpus(sheet.gpu_mentions(), builtin_gpus())) == []

    def test_an_unknown_gpu_is_reported_with_line_path_and_nearest_name(self) -> None:
        text = yaml.safe_dump({"offers": [ROW, {**ROW, "id": "b", "gpu": "H100-SMX"}]}, sort_keys=False)
        document = parse_document(text, name="offers.yaml")
        with pytest.raises(DocumentError) as caught:
            require_known_gpus(document, read_model(document, PriceSheet).gpu_mentions(), builtin_gpus())
        (problem,) = caught.value.problems
        assert (problem.path, problem.line) == ("offers[1].gpu", 15)
        assert "unknown GPU 'H100-SMX'; nearest: H100-SXM" in problem.message

    def test_a_sheet_of_known_gpus_is_accepted(self) -> None:
        document = parse_document(yaml.safe_dump({"offers": [ROW]}), name="offers.yaml")
        require_known_gpus(document, read(ROW).gpu_mentions(), builtin_gpus())


offers = st.builds(
    Offer,
    id=st.from_regex(r"[a-z0-9][a-z0-9._/-]{0,20}", fullmatch=True),
    provider=st.text("abcXYZ é-", min_size=1, max_size=10),
    region=st.just("eu-1"),
    market=st.just(Market.SPOT),
    gpu=st.sampled_from(["L4", "NO", "1", "null"]),
    gpus_per_instance=st.integers(1, 72),
    price_usd_per_h=st.floats(0.001, 1e6),
    available=st.none() | st.integers(0, 1000),
    interruption_rate_per_h=st.none() | st.floats(0, 60),
    as_of=st.dates(min_value=date(2015, 1, 1)),
    source=st.just("list"),
)


@given(st.lists(offers, max_size=5, unique_by=lambda offer: offer.id))
def test_writing_and_reading_gives_the_same(rows: list[Offer]) -> None:
    sheet = PriceSheet(offers=tuple(rows))
    assert read_model(parse_document(write_model(sheet), name="offers.yaml"), PriceSheet) == sheet
    assert read_model(parse_document(sheet.model_dump_json(), name="offers.json"), PriceSheet) == sheet
