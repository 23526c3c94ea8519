"""Work spread over processes: every result once, with the index of its input."""

import math

import pytest

from deploy.common.executors import Processes


@pytest.mark.parametrize("workers", [1, 2])
def test_every_input_has_exactly_one_result(workers: int) -> None:
    results = dict(Processes(workers=workers).run(math.sqrt, [0.0, 1.0, 4.0, 9.0]))
    assert results == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_failure_is_raised(workers: int) -> None:
    with pytest.raises(ValueError, match=r"domain error|nonnegative"):
        list(Processes(workers=workers).run(math.sqrt, [1.0, -1.0, 4.0]))


def test_no_inputs_give_no_results() -> None:
    assert list(Processes().run(math.sqrt, [])) == []
