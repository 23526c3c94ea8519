"""Work spread over processes: every answer once, with the position of its input."""

import math

import pytest

from deploy.common.executors import Processes


@pytest.mark.parametrize("workers", [1, 2])
def test_every_input_is_answered_once(workers: int) -> None:
    answers = dict(Processes(workers=workers).run(math.sqrt, [0.0, 1.0, 4.0, 9.0]))
    assert answers == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_failure_ends_the_work(workers: int) -> None:
    with pytest.raises(ValueError, match=r"domain error|nonnegative"):
        list(Processes(workers=workers).run(math.sqrt, [1.0, -1.0, 4.0]))


def test_nothing_to_do() -> None:
    assert list(Processes().run(math.sqrt, [])) == []
