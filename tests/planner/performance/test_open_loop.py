"""Waiting times, against cases with exact results."""

import numpy as np
import pytest

from planner.performance.hardware_demand import Array
from planner.performance.open_loop import interruptions, slots_wait_s, turn_wait_s, wait_quantile_s


def one(value: float) -> Array:
    return np.array([value])


def test_one_slot_with_poisson_arrivals_matches_pollaczek_khinchine() -> None:
    load, service_s = 0.8, 2.0
    for service_cv in (0.0, 1.0):
        exact_s = load * service_s / (1 - load) * (1 + service_cv**2) / 2
        found = turn_wait_s(load=one(load), service_s=one(service_s), arrival_cv=1.0, service_cv=service_cv)
        assert found.item() == pytest.approx(exact_s)


def test_many_slots_approximate_erlang_c() -> None:
    """M/M/c with c = 10 and load 0.9: the mean wait is 0.669 service times (Erlang's C 0.669)."""
    found = slots_wait_s(busy=one(9.0), slots=one(10.0), service_s=one(1.0), arrival_cv=1.0, service_cv=1.0)
    assert found.item() == pytest.approx(0.669, rel=0.06)


def test_a_saturated_station_has_an_infinite_wait() -> None:
    found = slots_wait_s(busy=one(10.0), slots=one(10.0), service_s=one(1.0), arrival_cv=1.0, service_cv=1.0)
    assert found.item() == np.inf


def test_wait_quantiles_of_an_m_m_1_queue_are_exact() -> None:
    """M/M/1: P(W > t) = load * exp(-t (1 - load) / service)."""
    load, service_s = 0.7, 1.5
    mean = turn_wait_s(load=one(load), service_s=one(service_s), arrival_cv=1.0, service_cv=1.0)
    for quantile in (0.5, 0.9, 0.99):
        exact_s = np.log(load / (1 - quantile)) * service_s / (1 - load)
        assert wait_quantile_s(mean, delayed=one(load), quantile=quantile).item() == pytest.approx(exact_s)


def test_a_quantile_below_the_probability_of_no_wait_is_zero() -> None:
    assert wait_quantile_s(one(1.0), delayed=one(0.3), quantile=0.5).item() == 0.0


def test_interruptions_match_a_simulated_busy_period() -> None:
    """Against a simulation: each interrupting prompt lengthens the stay, and more prompts arrive meanwhile."""
    rng = np.random.default_rng(0)
    for alone, load in ((1.0, 0.3), (3.0, 0.5), (20.0, 0.6)):
        fresh = rng.poisson(alone, size=100_000)
        total = fresh.copy()
        while fresh.any():
            fresh = rng.poisson(fresh * load)
            total += fresh
        for quantile in (0.9, 0.99):
            found = interruptions(one(alone / (1 - load)), load=one(load), arrival_cv=1.0, quantile=quantile).item()
            assert found == pytest.approx(np.quantile(total, quantile), rel=0.12, abs=1.0)


def test_interruptions_are_zero_where_a_prompt_is_rarer_than_the_quantile() -> None:
    assert interruptions(one(0.009), load=one(0.1), arrival_cv=1.0, quantile=0.99).item() == 0.0
    assert interruptions(one(0.011), load=one(0.1), arrival_cv=1.0, quantile=0.99).item() > 0.5
