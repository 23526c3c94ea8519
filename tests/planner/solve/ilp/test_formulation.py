"""The docs and the code name the same constraints and programs."""

import re
from dataclasses import replace
from pathlib import Path

from planner.objectives import COST_AND_SWITCHING, ENERGY
from planner.problem import Change, Leg, Limit, LimitKind, Load, Loss, MixProblem, ReplicaOption, Route, Supply
from planner.solve import ilp
from planner.solve.ilp import constraints

DOCS = Path(__file__).resolve().parents[4] / "docs" / "explanation" / "planner"
FORMULATION = (DOCS / "formulation.md").read_text(encoding="utf-8")

PROBLEM = MixProblem(
    loads=(Load("w", (2.0, 0.001), min_replicas=1),),
    supplies=(Supply("f", 1.0, slots=2, available=3),),
    options=(ReplicaOption("o", "L4", 0),),
    routes=(Route("o", 0, (Leg(0, (1.0, 1.0), (0.8, 0.8)),)),),
    limits=(Limit("budget", LimitKind.BUDGET, 9.0, units={0: 1.0}),),
    change=Change(max_started=4, max_stopped=4),
    own_nodes=True,
    erring_buckets=1,
)
LOSS = Loss("node of f", {0: 2})


def with_survivor_cut(model: ilp.MixModel) -> ilp.MixModel:
    """A program with a cut row."""
    ilp.add_survivor_cut(model, scenario=0, loss=LOSS, position=0, weights=[1.0], need=1.0)
    return model


def with_cuts(model: ilp.MixModel) -> ilp.MixModel:
    """A program without shares, with cut rows."""
    ilp.add_service(model, position=0, weights=[1.0], need=1.0)
    return with_survivor_cut(model)


PROGRAMS = {
    "P1": with_survivor_cut(ilp.cheapest(PROBLEM, routes=[0], losses={0: LOSS})),
    "P2": with_survivor_cut(
        ilp.fewest_gpus(replace(PROBLEM, objective=ENERGY), units=[2], ceiling=1.0, routes=[0], losses={0: LOSS})
    ),
    "P8": with_cuts(ilp.cheapest(replace(PROBLEM, erring_buckets=0), routes=[0], losses={0: LOSS}, by_counts=True)),
    "P9": with_cuts(
        ilp.fewest_gpus(
            replace(PROBLEM, erring_buckets=0, objective=COST_AND_SWITCHING),
            units=[2],
            ceiling=1.0,
            routes=[0],
            losses={0: LOSS},
            by_counts=True,
        )
    ),
    "P3": ilp.min_max_load(PROBLEM, replicas=[3]),
    "P4": ilp.min_shortage(PROBLEM),
    "P5": ilp.max_served(PROBLEM),
    "P6": ilp.cheapest_serving(PROBLEM, served_rps=1.0),
}


def section(number: int) -> str:
    return re.split(r"^## \d+\. .*$", FORMULATION, flags=re.MULTILINE)[number]


def documented_rows() -> dict[str, str]:
    """Row -> the function that adds it, of the table in section 3."""
    return dict(re.findall(r"^\| `(\w+)(?:\[[^]]*\])?` \| .* \| `(\w+)` \|$", section(3), flags=re.MULTILINE))


def rows_of(program: ilp.MixModel) -> set[str]:
    return {re.sub(r"(_\d+)+$", "", row.name) for row in program.program.constraints()}


def test_every_function_that_adds_rows_is_documented() -> None:
    functions = {name for name in dir(constraints) if name.startswith("add_")}
    assert set(documented_rows().values()) == functions


def test_every_row_is_documented() -> None:
    assert {row for program in PROGRAMS.values() for row in rows_of(program)} == documented_rows().keys()


def test_every_program_has_the_rows_of_the_docs() -> None:
    table = re.findall(r"^\| (P\d) \| .* \| ([^|]*) \| `(\w+)` \|$", section(4), flags=re.MULTILINE)
    assert {number: set(rows.split(", ")) for number, rows, _ in table} == {
        number: rows_of(program) for number, program in PROGRAMS.items()
    }
    assert all(callable(getattr(ilp, function)) for _, _, function in table)
