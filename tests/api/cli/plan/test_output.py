"""Printed moves and schedules: the workload of each move, and notes on the schedule."""

import pytest

from api.cli.plan.output import print_plan
from planner.time_limit import Phase
from tests.planner.requests import given, solved

DEMAND = {"step_s": 3600, "rates_rps": [10, 30]}


def printed(capsys: pytest.CaptureFixture[str], *names: str) -> str:
    """The printed two-hour plan for equal workloads with these names, without running replicas."""
    (workload,) = given(rate_rps=None, demand=DEMAND)["workloads"]
    workloads = [workload | {"name": name} for name in names]
    request = {"workloads": workloads, "horizon": {"periods": 2, "warm_up_min": 30}, "current": []}
    print_plan(solved(request))
    return capsys.readouterr().out


def test_moves_name_their_workload_when_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "chat", "code").splitlines()
    start = next(line for line in lines if " start " in line and " x " in line)
    assert "chat: " in start
    assert "code: " in start


def test_moves_of_a_single_workload_do_not_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line for line in printed(capsys, "chat").splitlines() if " x " in line and not line.startswith("- ")]
    assert rows
    assert not any("chat: " in row for row in rows)


def test_a_note_names_an_unserved_workload(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "chat").splitlines()
    (note,) = [line for line in lines if line.startswith("note: ")]
    assert note.startswith("note: the running replicas do not serve chat in period 1 of 2")


def test_phases_that_the_time_limit_cut_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    plan = solved(given())
    print_plan(plan)
    assert "time limit cut" not in capsys.readouterr().out
    print_plan(plan.model_copy(update={"cut": (Phase.REPLAY, Phase.EXPLANATION)}))
    assert "\nthe time limit cut short: replay, explanation\n" in capsys.readouterr().out
