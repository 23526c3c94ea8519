"""Every kind of observation round-trips through a line bit for bit, and an invalid line raises an error."""

import json
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.observation_jsonl import KINDS, MAX_COUNT, from_line, to_line
from faults.observations import Observation, Process, SocketPoll, Values

numbers = st.floats(-1e299, 1e299)
counts = st.integers(-1, MAX_COUNT)
texts = st.text(max_size=20)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: counts,
    float: numbers,
    str: texts,
    str | None: st.none() | texts,
    int | None: st.none() | counts,
    float | None: st.none() | numbers,
    tuple[int, ...]: st.lists(counts, max_size=4).map(tuple),
    tuple[tuple[str, int], ...]: st.lists(st.tuples(texts, counts), max_size=4).map(tuple),
}


def values_of(kind: type[Values]) -> st.SearchStrategy[Values]:
    hints = get_type_hints(kind)
    return st.builds(kind, *(PLAIN[hint] for hint in hints.values()))


observations = st.builds(
    Observation,
    numbers,
    st.integers(0, MAX_COUNT),
    st.one_of([values_of(kind) for kind in get_args(Values)]),
    st.none() | st.integers(0, MAX_COUNT),
    st.none() | st.integers(0, MAX_COUNT),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(sorted(KINDS)),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(observations)
def test_an_observation_round_trips_through_a_line(observation: Observation) -> None:
    line = to_line(observation)
    back = from_line(line)

    assert back == observation
    assert type(back.values) is type(observation.values)
    assert to_line(back) == line
    assert "\n" not in line


@given(anything)
def test_any_json_is_an_observation_or_a_value_error(found: Any) -> None:
    try:
        back = from_line(json.dumps(found))
    except ValueError:
        return
    assert from_line(to_line(back)) == back


@given(observations, st.data())
def test_a_truncated_line_raises_a_value_error(observation: Observation, data: st.DataObject) -> None:
    line = to_line(observation)
    with pytest.raises(ValueError, match=r"."):
        from_line(line[: data.draw(st.integers(0, len(line) - 1))])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[" * 100_000,
        '[1.0,0,null,null,"look",[true]]',
        '[1.0,0,null,null,"look",[1.5]]',
        '[1.0,0,null,null,"look",[1,2]]',
        '[1.0,0,null,null,"look",[]]',
        '[1.0,0,null,null,"Look",[1]]',
        '[NaN,0,null,null,"look",[1]]',
        '[1e999,0,null,null,"look",[1]]',
        '["1",0,null,null,"look",[1]]',
        '[1.0,0.0,null,null,"look",[1]]',
        '[1.0,99999999999999999999,null,null,"look",[1]]',
        '[1.0,0,null,null,"process",[1,"' + "x" * 2000 + '",1.0,1]]',
    ],
)
def test_an_invalid_line_raises_a_value_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_line(line)


def test_values_that_have_defaults_may_be_absent() -> None:
    assert from_line('[1.0,0,null,null,"process",[7,"R",1]]').values == Process(7, "R", 1.0)


def test_a_line_is_short() -> None:
    assert to_line(Observation(1.5, 3, SocketPoll(peers=7))) == '[1.5,3,null,null,"look",[7]]'
