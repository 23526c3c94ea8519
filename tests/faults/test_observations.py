"""Moving an observation to another clock shifts every timestamp in it and nothing else."""

from typing import get_type_hints

from faults.observation_jsonl import KINDS
from faults.observations import (
    TIME_FIELDS,
    Collective,
    FlightProgress,
    Observation,
    PointToPoint,
    Probe,
    ProbeReturned,
    SocketPoll,
    on_clock_of,
)


def test_all_timestamps_are_shifted() -> None:
    moved = on_clock_of(Observation(105.0, 1, Collective(1, "all_reduce", 8, 103.0, 104.5), rank=1), 100.0)

    assert moved == Observation(5.0, 1, Collective(1, "all_reduce", 8, 3.0, 4.5), rank=1)


def test_missing_timestamps_stay_missing() -> None:
    assert on_clock_of(Observation(105.0, 1, Collective(1, "x", 8, 103.0, None)), 100.0).values == Collective(
        1, "x", 8, 3.0, None
    )
    assert on_clock_of(Observation(105.0, 1, SocketPoll(2)), 100.0) == Observation(5.0, 1, SocketPoll(2))


def test_every_timestamp_field_is_listed() -> None:
    """Durations end in _s too, so a new kind must list which of its values are timestamps."""
    durations = {"cpu_s", "took_s", "tail_s", "waited_s"}
    for kind in KINDS.values():
        timed = {name for name in get_type_hints(kind) if name.endswith("_s") and "_per_" not in name} - durations
        assert timed == set(TIME_FIELDS.get(kind, ()))
    assert set(TIME_FIELDS) == {Collective, PointToPoint, Probe, ProbeReturned, FlightProgress}
