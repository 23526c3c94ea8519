"""The formulation in the docs and the code that builds it name the same constraints and programs."""

import re
from pathlib import Path

from planner import ilp
from planner.problem import Load, MixProblem, ReplicaOption, Supply

FORMULATION = (Path(__file__).resolve().parents[2] / "docs" / "formulation.md").read_text(encoding="utf-8")

PROBLEM = MixProblem(
    loads=(Load("w", (2.0, 0.001), min_replicas=1),),
    supplies=(Supply("f", 1.0, slots=2, available=3),),
    options=(ReplicaOption("o", "L4", 0, 0, (1.0, 1.0)),),
)
PROGRAMS = {
    "cheapest": ilp.cheapest(PROBLEM, options=[0]),
    "fewest_gpus": ilp.fewest_gpus(PROBLEM, units=[2], options=[0]),
    "most_even": ilp.most_even(PROBLEM, replicas=[3]),
    "least_missing": ilp.least_missing(PROBLEM),
    "most_served": ilp.most_served(PROBLEM),
}


def section(number: int) -> str:
    return re.split(r"^## \d+\. .*$", FORMULATION, flags=re.MULTILINE)[number]


def documented_constraints() -> dict[str, str]:
    """Function -> constraint, of the table in section 3."""
    return {
        function: name for name, function in re.findall(r"^\| `(\w+)\[.*\| `(\w+)` \|$", section(3), flags=re.MULTILINE)
    }


def test_every_constraint_stands_in_the_docs_with_the_function_that_adds_it() -> None:
    functions = {name: f"add_{constraint}" for name, constraint in documented_constraints().items()}
    assert functions == {name: name for name in dir(ilp) if name.startswith("add_")}


def test_every_program_has_the_constraints_that_the_docs_say() -> None:
    rows = re.findall(r"^\| P\d \| .* \| ([^|]*) \| `(\w+)` \|$", section(4), flags=re.MULTILINE)
    documented = {function: constraints for constraints, function in rows}
    assert documented.keys() == PROGRAMS.keys()
    for function, constraints in documented.items():
        expected = documented["cheapest"] if constraints.startswith("as P1") else constraints
        built = {re.sub(r"(_\d+)+$", "", row.name) for row in PROGRAMS[function].program.constraints()}
        assert built == set(expected.split(", ")), function
