"""The exception tree: messages and attributes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import DocumentError, FleetwrightError, Problem, UnknownNameError, nearest_names


def test_a_problem_is_printed_with_line_path_and_message() -> None:
    assert str(Problem("offers[3].market", "is required", 12)) == "line 12: offers[3].market: is required"


def test_a_problem_without_line_or_path_is_printed_without_them() -> None:
    assert str(Problem("offers[3].market", "is required")) == "offers[3].market: is required"
    assert str(Problem("", "is empty", 1)) == "line 1: is empty"
    assert str(Problem("", "is empty")) == "is empty"


def test_a_document_error_names_the_document_and_every_problem() -> None:
    error = DocumentError(name="fleet.yaml", problems=iter([Problem("a", "is wrong", 1), Problem("b", "is worse", 2)]))
    assert str(error) == "fleet.yaml: line 1: a: is wrong; line 2: b: is worse"
    assert [problem.path for problem in error.problems] == ["a", "b"]


@pytest.mark.parametrize(
    "error", [DocumentError(name="f", problems=[]), UnknownNameError(kind="k", name="n", known=[])]
)
def test_every_error_is_a_fleetwright_error(error: Exception) -> None:
    assert isinstance(error, FleetwrightError)


def test_an_unknown_name_is_reported_with_the_nearest() -> None:
    error = UnknownNameError(kind="GPU", name="h100-sxn", known=["A10G", "H100-SXM", "H100-PCIe"])
    assert error.nearest[0] == "H100-SXM"
    assert str(error).startswith("unknown GPU 'h100-sxn'; nearest: H100-SXM")


def test_without_a_similar_name_no_name_is_suggested() -> None:
    assert str(UnknownNameError(kind="GPU", name="zzz", known=["A10G"])) == "unknown GPU 'zzz'"


@given(st.lists(st.text(min_size=1), max_size=10), st.text(), st.integers(min_value=1, max_value=5))
def test_nearest_names_are_known_and_at_most_the_given_number(known: list[str], name: str, most: int) -> None:
    nearest = nearest_names(name, known, max_names=most)
    assert len(nearest) <= most
    assert set(nearest) <= set(known)


@given(st.lists(st.text("abcXYZ-19", min_size=1), min_size=1, max_size=10, unique_by=str.casefold), st.data())
def test_a_name_in_another_case_is_the_nearest(known: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(known))
    assert nearest_names(name.swapcase(), known)[0] == name
