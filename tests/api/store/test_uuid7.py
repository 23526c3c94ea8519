"""Ids sort by time, and after the newest stored id whatever the clock."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from api.store import ID_PATTERN, new_id

NOW = datetime(2026, 11, 21, tzinfo=UTC)
moments = st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone


@given(moments=st.lists(moments, min_size=2, max_size=20))
def test_ids_increase_whatever_the_clock_does(moments: list[datetime]) -> None:
    ids: list[str] = []
    for moment in moments:
        ids.append(new_id(moment, after=ids[-1] if ids else None))
    assert all(first < second for first, second in pairwise(ids))
    for each in ids:
        assert re.fullmatch(ID_PATTERN, each)
        assert (uuid.UUID(each).version, uuid.UUID(each).variant) == (7, uuid.RFC_4122)


def test_an_id_has_the_time_of_a_clock_that_moves_forward() -> None:
    first = new_id(NOW)
    second = new_id(NOW + timedelta(milliseconds=1), after=first)
    assert [int(each.replace("-", "")[:12], 16) for each in (first, second)] == [1795219200000, 1795219200001]


def test_the_greatest_random_part_carries_into_the_time() -> None:
    last = "01a1fd26-439a-7fff-bfff-ffffffffffff"
    following = new_id(NOW - timedelta(days=9), after=last)
    assert following > last
    assert uuid.UUID(following).version == 7
