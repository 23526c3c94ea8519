"""Continuous planning: the pure step from observed windows to decisions."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.demand.density import exact_density
from planner.demand.replicas import Window
from planner.demand.windows import DemandWindow
from planner.planning_loop import (
    LoopDecision,
    LoopMemory,
    LoopSettings,
    decide_window,
    observe,
    recent_shares,
    size_problems,
)
from planner.request import PlanRequest
from planner.result import Allocation

SETTINGS = LoopSettings(window_s=60, warm_up_s=120, quantile=0.95, patience=4)
TEMPLATE = PlanRequest.model_validate(
    {
        "workloads": [
            {
                "name": "chat",
                "rate_rps": 1.0,
                "buckets": {"input_tokens": [500, 2000, 8000], "output_tokens": [500], "share": [[0.6], [0.3], [0.1]]},
                "options": [
                    {"name": "small", "gpu": "L4", "price_usd_per_h": 1.0, "max_rps": [[2.0], [1.0], [0.0]]},
                    {"name": "large", "gpu": "H100", "price_usd_per_h": 4.0, "max_rps": [[12.0], [6.0], [2.0]]},
                ],
            }
        ]
    }
)


def window(number: int, *, rate_rps: float, input_tokens: Iterable[int] = (300, 300, 1500)) -> DemandWindow:
    sizes = np.resize(list(input_tokens), max(1, round(rate_rps * 60)))
    return DemandWindow(
        window=Window(60.0 * number, 60.0 * (number + 1)),
        arrivals_rps=rate_rps,
        completions_rps=rate_rps,
        requests=float(len(sizes)),
        input_tokens=exact_density(sizes),
        output_tokens=exact_density(np.full(len(sizes), 200)),
    )


def decided(memory: LoopMemory, running: tuple[Allocation, ...]) -> LoopDecision:
    return decide_window(
        TEMPLATE,
        memory=memory,
        settings=SETTINGS,
        running=running,
        windows={},
        traffic={},
        gpus=builtin_gpus(),
        models=builtin_models(),
        offers=(),
    )


def allocation(**counts: int) -> tuple[Allocation, ...]:
    gpus = {"small": "L4", "large": "H100"}
    return tuple(
        Allocation(
            workload="chat",
            option=name,
            gpu=gpus[name],
            count=n,
            gpus_per_replica=1,
            offer=None,
            busy=0.5,
            power_w=None,
        )
        for name, n in counts.items()
    )


def observed(*rates_rps: float, memory: LoopMemory = LoopMemory(), first: int = 0, **changes: object) -> LoopMemory:
    for number, rate_rps in enumerate(rates_rps, start=first):
        found = window(number, rate_rps=rate_rps, **changes)  # type: ignore[arg-type]
        memory = observe(memory, {"chat": found}, template=TEMPLATE, settings=SETTINGS)
    return memory


class TestDemand:
    def test_the_request_has_the_observed_sizes_and_at_least_the_observed_rate(self) -> None:
        request = decided(observed(*[5.0] * 10), ()).request
        (workload,) = request.workloads
        assert workload.planned_rps >= 5.0
        assert [row[0] for row in workload.buckets.share] == pytest.approx([2 / 3, 1 / 3, 0])

    def test_a_doubled_rate_is_planned_in_the_next_window(self) -> None:
        memory = observed(*[5.0] * 80)
        before = decided(memory, allocation(large=1))  # of 9 requests/s
        after = decided(observed(10.0, memory=memory, first=80), allocation(large=1))
        assert not before.moved
        assert after.moved
        assert after.request.workloads[0].planned_rps >= 10.0

    def test_longer_prompts_are_planned_in_the_next_window(self) -> None:
        memory = observed(*[5.0] * 20)
        memory = observed(5.0, memory=memory, first=20, input_tokens=(1500, 1500, 6000))
        decision = decided(memory, allocation(large=1))
        assert decision.moved
        assert [row[0] for row in decision.request.workloads[0].buckets.share] == pytest.approx([0, 2 / 3, 1 / 3])

    def test_few_requests_do_not_change_the_sizes_by_themselves(self) -> None:
        memory = observed(*[5.0] * 5)
        later = observed(0.1, memory=memory, first=5, input_tokens=(7000,))
        before, after = (recent_shares(each.sizes["chat"]) for each in (memory, later))
        assert before is not None
        assert after == pytest.approx(before, abs=0.01)

    def test_the_sizes_of_rare_requests_are_pooled(self) -> None:
        assert recent_shares([(4.0, 2.0, 0.0)] * 3) is None
        assert recent_shares([(4.0, 2.0, 0.0)] * 6) == pytest.approx((2 / 3, 1 / 3, 0))

    def test_requests_beyond_the_last_bucket_are_a_problem(self) -> None:
        found = window(0, rate_rps=5, input_tokens=(300, 300, 12_000))
        (problem,) = size_problems({"chat": found}, template=TEMPLATE)
        assert problem.startswith("33% of the requests of chat have more than 8,000 input tokens")
        assert size_problems({"chat": window(0, rate_rps=5)}, template=TEMPLATE) == []

    def test_a_new_loop_does_not_double_a_steady_fleet(self) -> None:
        for windows in range(2, 40):
            rate_rps = decided(observed(*[10.0] * windows), ()).forecast_rps["chat"]
            assert 10.0 <= rate_rps <= 13.5, windows

    def test_noise_in_the_sizes_is_pooled(self) -> None:
        generator = np.random.default_rng(1)
        rows = [tuple(generator.multinomial(300, [0.6, 0.3, 0.1]).astype(float)) for _ in range(6)]
        assert recent_shares(rows) == pytest.approx([0.6, 0.3, 0.1], abs=0.03)
        changed = recent_shares([*rows, (10.0, 100.0, 190.0)])
        assert changed is not None
        assert changed[2] == pytest.approx(190 / 300)


class TestDecisions:
    def test_a_steady_load_keeps_its_replicas(self) -> None:
        generator = np.random.default_rng(2)
        memory, running, moves = LoopMemory(), allocation(large=1), 0
        for number in range(60):
            rate_rps = 20.0 * float(generator.normal(1, 0.05))
            memory = observed(rate_rps, memory=memory, first=number)
            decision = decided(memory, running)
            memory = decision.memory
            if decision.moved:
                moves += 1
                running = allocation(**{option: count for (_, option), count in decision.replicas.items()})
        assert moves <= 6

    def test_a_demand_that_no_mix_serves_is_reported(self) -> None:
        limited = replace_available(TEMPLATE, available=1)
        memory = observed(*[50.0] * 5)
        decision = decide_window(
            limited,
            memory=memory,
            settings=SETTINGS,
            running=allocation(large=1),
            windows={},
            traffic={},
            gpus=builtin_gpus(),
            models=builtin_models(),
            offers=(),
        )
        assert not decision.moved
        assert not decision.is_served

    def test_an_option_that_vanished_is_replaced(self) -> None:
        decision = decided(observed(*[5.0] * 10), (allocation(large=1)[0].model_copy(update={"option": "old"}),))
        assert decision.moved
        assert "chat has no option 'old'" in decision.reason

    def test_a_step_does_not_change_its_input(self) -> None:
        memory = observed(*[5.0] * 4)
        assert decided(memory, ()) == decided(replace(memory), ())


def replace_available(template: PlanRequest, *, available: int) -> PlanRequest:
    document = template.model_dump(mode="json")
    for option in document["workloads"][0]["options"]:
        option["available"] = available
    return PlanRequest.model_validate(document)
