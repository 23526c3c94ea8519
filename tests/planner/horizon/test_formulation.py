"""docs/explanation/planner/horizon.md and the code that builds the program name the same rows."""

import re
from pathlib import Path

from fleet.offers import Market
from planner.horizon import HorizonProblem
from planner.horizon import program as programs
from planner.problem import Leg, Limit, LimitKind, Load, MixProblem, ReplicaOption, Route, Supply

FORMULATION = (Path(__file__).resolve().parents[3] / "docs" / "explanation" / "planner" / "horizon.md").read_text(
    encoding="utf-8"
)

PROBLEM = HorizonProblem(
    base=MixProblem(
        loads=(Load("w", (1.0,), min_replicas=1),),
        supplies=(Supply("f", 1.0, slots=2, available=3),),
        options=(ReplicaOption("o", "L4", 0),),
        routes=(Route("o", 0, (Leg(0, (1.0,)),)),),
        limits=(Limit("budget", LimitKind.BUDGET, 9.0, units={0: 1.0}),),
    ),
    rates_rps=(((1.0,),), ((2.0,),)),
    period_h=1.0,
    markets=(Market.ON_DEMAND,),
    warmup_h=(0.5,),
    start_usd=1.0,
    initial=(1,),
)


def documented_rows() -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)(?:\[[^]]*\])?` \| .* \| `(\w+)` \|$", FORMULATION, flags=re.MULTILINE))


def test_every_function_that_adds_rows_is_documented() -> None:
    assert set(documented_rows().values()) == {name for name in dir(programs) if name.startswith("add_")}


def test_every_row_is_documented() -> None:
    model = programs.cheapest_path(PROBLEM)
    programs.add_service(model, period=0, cut=0, weights=[1.0], need=1.0)
    built = {re.sub(r"(_\d+)+$", "", row.name) for row in model.program.constraints()}
    assert built == documented_rows().keys()


def test_the_sections_are_numbered_consecutively() -> None:
    assert re.findall(r"^## (\d+)\. ", FORMULATION, flags=re.MULTILINE) == [str(number) for number in range(1, 8)]
