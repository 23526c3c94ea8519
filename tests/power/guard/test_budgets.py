"""Budget requests: accepted or rejected as a whole, and the limit in force while they change."""

from math import inf, nan
from typing import Any

import pytest
from pydantic import ValidationError

from power.guard import BudgetRequest, GuardSettings, Timetable, accept
from power.guard.budgets import BudgetError
from power.telemetry import Budget

SETTINGS = GuardSettings(rating_w=200_000.0, lead_s=60.0)


def request_of(*limits: float | tuple[float, float], valid_s: float = 300.0, **more: Any) -> BudgetRequest:
    entries = [{"limit_w": one} if isinstance(one, float) else {"after_s": one[0], "limit_w": one[1]} for one in limits]
    return BudgetRequest.model_validate({"domain": "row-a", "limits": entries, "valid_s": valid_s} | more)


def accepted(request: BudgetRequest, *, before: Timetable | None = None, now_s: float = 1000.0) -> Timetable:
    return accept(request, before=before, domain="row-a", settings=SETTINGS, now_s=now_s)


def test_a_limit_holds_until_it_expires() -> None:
    assert accepted(request_of(150_000.0)).at(1000.0) == Budget(150_000.0, 1300.0)


def test_each_limit_holds_in_its_phase() -> None:
    day = accepted(request_of(180_000.0, (100.0, 140_000.0), (200.0, 190_000.0)))
    assert [day.at(now_s).limit_w for now_s in (1000, 1099, 1100, 1199, 1200, 1250)] == [
        *(180_000.0, 180_000.0, 140_000.0, 140_000.0, 190_000.0, 190_000.0),
    ]


def test_a_lower_limit_is_announced_before_it_holds_and_a_higher_one_is_not() -> None:
    day = accepted(request_of(180_000.0, (100.0, 140_000.0), (200.0, 190_000.0)))
    assert day.coming_w(1039.0, lead_s=60.0) == 180_000.0
    assert day.coming_w(1040.0, lead_s=60.0) == 140_000.0
    assert min(day.at(1150.0).limit_w, day.coming_w(1150.0, lead_s=60.0)) == 140_000.0


@pytest.mark.parametrize(
    ("budget", "path", "message"),
    [
        (request_of(-5.0), ("limits", 0, "limit_w"), "must be above 0 and at most the rating (200000 W), got -5"),
        (request_of(0.0), ("limits", 0, "limit_w"), "must be above 0 and at most the rating (200000 W), got 0"),
        (
            request_of(200_001.0),
            ("limits", 0, "limit_w"),
            "must be above 0 and at most the rating (200000 W), got 200001",
        ),
        (request_of(1.0, (5.0, 3e5)), ("limits", 1, "limit_w"), "must be above 0 and at most the rating"),
        (request_of(1e5, domain="row-b"), ("domain",), "unknown domain 'row-b'; this guard's is 'row-a'"),
        (
            request_of(1e5, valid_s=0.0),
            ("valid_s",),
            "must be above 0 and at most 604800 s, got 0 (it would have expired",
        ),
        (request_of(1e5, valid_s=-60.0), ("valid_s",), "got -60 (it would have expired already)"),
        (request_of(1e5, valid_s=1e6), ("valid_s",), "must be above 0 and at most 604800 s, got 1e+06"),
    ],
)
def test_an_invalid_order_names_its_fields_and_the_old_one_stays_in_force(
    budget: BudgetRequest, path: Any, message: str
) -> None:
    before = accepted(request_of(150_000.0))
    with pytest.raises(BudgetError) as refused:
        accepted(budget, before=before, now_s=1010.0)
    ((where, reported),) = refused.value.violations
    assert where == path
    assert reported.startswith(message) or message in reported
    assert before.at(1010.0) == Budget(150_000.0, 1300.0)


def test_every_violation_is_reported_at_once() -> None:
    with pytest.raises(BudgetError) as refused:
        accepted(request_of(-1.0, (10.0, 3e5), valid_s=-1.0, domain="x"))
    assert len(refused.value.violations) == 4


@pytest.mark.parametrize("limit_w", [nan, inf, True, "150000"])
def test_a_limit_that_is_no_number_is_rejected_by_the_schema(limit_w: Any) -> None:
    with pytest.raises(ValidationError):
        BudgetRequest.model_validate({"domain": "row-a", "limits": [{"limit_w": limit_w}], "valid_s": 60.0})


@pytest.mark.parametrize("limits", [[], [(5.0, 1e5)], [1e5, (10.0, 1e5), (10.0, 1e5)]])
def test_limits_that_do_not_begin_now_or_do_not_rise_in_time_are_refused(limits: list[Any]) -> None:
    with pytest.raises(ValidationError):
        request_of(*limits)


class TestCutWithoutNotice:
    def test_the_policy_gets_a_cut_at_once_and_the_brake_after_the_lead_time(self) -> None:
        cut = accepted(request_of(120_000.0), before=accepted(request_of(180_000.0)), now_s=1100.0)
        assert cut.coming_w(1100.0, lead_s=60.0) == 120_000.0
        assert [cut.at(now_s).limit_w for now_s in (1100.0, 1159.0, 1160.0)] == [180_000.0, 180_000.0, 120_000.0]

    def test_repeating_a_cut_does_not_delay_it(self) -> None:
        cut = accepted(request_of(120_000.0), before=accepted(request_of(180_000.0)), now_s=1100.0)
        for now_s in range(1110, 1160, 10):
            cut = accepted(request_of(120_000.0), before=cut, now_s=float(now_s))
        assert cut.at(1160.0).limit_w == 120_000.0

    def test_a_cut_for_a_lost_feed_holds_at_once(self) -> None:
        cut = accepted(request_of(120_000.0, at_once=True), before=accepted(request_of(180_000.0)), now_s=1100.0)
        assert cut.at(1100.0).limit_w == 120_000.0

    def test_a_rise_holds_at_once(self) -> None:
        risen = accepted(request_of(190_000.0), before=accepted(request_of(180_000.0)), now_s=1100.0)
        assert risen.at(1100.0).limit_w == 190_000.0

    def test_a_cut_after_expiry_holds_at_once(self) -> None:
        cut = accepted(request_of(120_000.0), before=accepted(request_of(180_000.0)), now_s=1300.0)
        assert cut.at(1300.0).limit_w == 120_000.0


@pytest.mark.parametrize(
    ("limits", "path"),
    [
        ([{"limit_w": 1e-9}], ("limits", 0, "limit_w")),
        ([{"limit_w": 9e4}, {"after_s": 60.0, "limit_w": 8e4}], ("limits", 1, "after_s")),
    ],
)
def test_a_limit_below_any_row_or_after_the_validity_is_refused(
    limits: list[dict[str, float]], path: tuple[object, ...]
) -> None:
    request = BudgetRequest.model_validate({"domain": "row-a", "valid_s": 60.0, "limits": limits})
    with pytest.raises(BudgetError) as refused:
        accept(request, before=None, domain="row-a", settings=GuardSettings(rating_w=2e5), now_s=0.0)
    assert [where for where, _ in refused.value.violations] == [path]
