"""The formulation in the docs and the code that builds it name the same constraints."""

import re
from pathlib import Path

import numpy as np

from fleet.solvers import Deadline, Limits
from placement.exact import assignment, pattern_model
from placement.exact.assignment import AssignmentModel, Case, min_max_load
from placement.exact.pattern_model import PatternModel, list_patterns, within_ceiling
from placement.exact.program import Program

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "placement" / "exact.md"
CASE = Case(
    loads=np.array([0.4, 0.3, 0.3]),
    shares=np.full(2, 0.5),
    slots_of_gpu=np.array([2, 2]),
    max_copies=2,
    ceiling=1.5,
)


def documented(title: str) -> dict[str, str]:
    """Constraint -> the function that adds it."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)\[[^]]*\]` \| .* \| `(add_\w+)` \|$", section, flags=re.MULTILINE))


def constraints_of(program: Program) -> set[str]:
    return {re.sub(r"(_\d+)+$", "", row.name) for row in program.inner.constraints()}


def adders_of(module: object) -> set[str]:
    return {name for name in dir(module) if name.startswith("add_")}


def test_the_assignment_formulation_has_the_documented_constraints() -> None:
    built = constraints_of(min_max_load(AssignmentModel.of(CASE)).program)
    assert built == documented("Assignment formulation").keys()
    assert adders_of(assignment) == set(documented("Assignment formulation").values())


def test_the_pattern_formulation_has_the_documented_constraints() -> None:
    listed = list_patterns(CASE, ceiling=1.5, deadline=Deadline.of(Limits(time_limit_s=60.0)))
    assert listed is not None
    built = constraints_of(within_ceiling(PatternModel.of(listed, ceiling=1.5)).program)
    assert built == documented("Pattern formulation").keys()
    assert adders_of(pattern_model) == set(documented("Pattern formulation").values())
