"""The formulation in the docs and the code that builds it name the same rows and programs."""

import re
from itertools import chain
from pathlib import Path

import numpy as np

from fleet.solvers import Deadline, Limits
from placement.exact import assignment_rows, balance_rows, gpu_pattern_rows
from placement.exact.assignment_model import OrderModel, ProductModel
from placement.exact.balance_model import BalanceModel, Case, Objective
from placement.exact.exchange import Exchange
from placement.exact.gpu_pattern_rows import FillingModel
from placement.exact.gpu_patterns import fillings
from placement.exact.program import Program

FORMULATION = (Path(__file__).resolve().parents[3] / "docs" / "placement" / "exact.md").read_text(encoding="utf-8")

PARTS = np.array([[0.4, 0.3, 0.3]])
EVEN = np.full(2, 0.5)
TWO = np.array([2, 2])

BALANCE = {
    "peak": (Case(PARTS, EVEN, most_copies=2, slots_of_gpu=TWO, ceiling=1.5), Objective.PEAK),
    "deviation": (Case(PARTS, EVEN, most_copies=2), Objective.DEVIATION),
    "peak, memory over layers": (
        Case(PARTS, EVEN, most_copies=2, copies_of_gpu=TWO, copies=4),
        Objective.PEAK,
    ),
}
EXCHANGE = Exchange(np.ones((1, 2, 2, 2, 2)), sizes=np.ones((2, 2), dtype=np.int64), copies_of_gpu=2, alike=True)


def section(number: int) -> str:
    return re.split(r"^## \d+\. .*$", FORMULATION, flags=re.MULTILINE)[number]


def documented_rows(number: int) -> dict[str, str]:
    """Row -> the function that adds it."""
    return dict(re.findall(r"^\| `(\w+)(?:\[[^]]*\])?` \| .* \| `(add_\w+)` \|$", section(number), flags=re.MULTILINE))


def rows_of(program: Program) -> set[str]:
    return {re.sub(r"(_\d+)+$", "", row.name) for row in program.inner.constraints()}


ASSIGNMENTS = {
    "least_tail_by_products": rows_of(
        assignment_rows.least_tail_by_products(ProductModel.of(EXCHANGE, ceiling_s=1.0)).program
    ),
    "least_tail_by_orders": rows_of(
        assignment_rows.least_tail_by_orders(OrderModel.of(EXCHANGE, ceiling_s=1.0)).program
    ),
}


def built(name: str) -> set[str]:
    case, objective = BALANCE[name]
    return rows_of(balance_rows.most_balanced(BalanceModel.of(case), objective).program)


def test_every_row_of_the_balance_programs_stands_in_the_docs() -> None:
    assert set(chain.from_iterable(map(built, BALANCE))) == documented_rows(3).keys()


def test_every_row_of_the_assignments_stands_in_the_docs() -> None:
    assert set(chain.from_iterable(ASSIGNMENTS.values())) == documented_rows(7).keys()


def test_every_assignment_program_has_the_rows_that_the_docs_say() -> None:
    table = re.findall(r"^\| \w+ \| ([^|]+) \| `(least_\w+)` \|$", section(7), flags=re.MULTILINE)
    assert {function: set(rows.split(", ")) for rows, function in table} == ASSIGNMENTS


def test_the_program_over_fillings_has_the_rows_that_the_docs_say() -> None:
    listed = fillings(BALANCE["peak"][0], ceiling=1.5, deadline=Deadline.of(Limits(time_limit_s=60.0)))
    assert listed is not None
    rows = rows_of(gpu_pattern_rows.within_ceiling(FillingModel.of(listed, ceiling=1.5)).program)
    (table,) = re.findall(r"\| ([\w, ]+) \| `within_ceiling` \|$", section(5), flags=re.MULTILINE)
    assert rows == documented_rows(5).keys() == set(table.split(", "))


def test_every_function_that_adds_rows_stands_in_the_docs() -> None:
    functions = {
        name
        for room in (balance_rows, gpu_pattern_rows, assignment_rows)
        for name in dir(room)
        if name.startswith("add_")
    }
    assert {function for number in (3, 5, 7) for function in documented_rows(number).values()} == functions


def test_every_balance_program_has_the_rows_that_the_docs_say() -> None:
    table = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \| `most_balanced` \|$", section(4), flags=re.MULTILINE)
    assert {name: set(rows.split(", ")) for name, rows in table} == {name: built(name) for name in BALANCE}
