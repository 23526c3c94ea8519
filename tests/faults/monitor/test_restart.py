"""A job that is restarted in place counts from the start again: no hang of its own, and hangs after it are found."""

import pytest

from faults.diagnosis import FaultClass, Verdict
from faults.job_state import Ledger
from faults.monitor import WatcherSettings
from faults.observations import Collective, Counts, Flight, Heartbeat, Look, Observation
from faults.observations.timestamps import on_clock_of
from faults.replay import replay
from tests.faults.stories import LOOK_S, Story

ONLY = WatcherSettings(slow=None)
FIRST = Story(goes_on=True, end_s=12.0)
RECORDS, BEATS = {"records": True, "beats": False}, {"records": False, "beats": True}
BOTH = {"records": True, "beats": True}


def verdicts(second: Story, *, down_s: float, records: bool, beats: bool) -> tuple[Verdict, ...]:
    """Of a job that ran, was away, and is `second` since."""
    begins_s = FIRST.end_s + down_s
    lives = [(FIRST, 0.0), (second, begins_s)]
    told = [
        on_clock_of(seen, -from_s) for story, from_s in lives for seen in story.but(records=records, beats=beats).told()
    ]
    away = range(int(FIRST.end_s / LOOK_S), int(begins_s / LOOK_S))
    told += [Observation(look * LOOK_S, node, Look(0)) for look in away for node in range(FIRST.nodes)]
    return replay(FIRST.job, sorted(told, key=lambda seen: seen.at_s), ONLY)


@pytest.mark.parametrize("down_s", [1.0, 2.0, 15.0])
@pytest.mark.parametrize("sources", [RECORDS, BEATS, BOTH])
def test_a_job_that_begins_again_does_not_hang(down_s: float, sources: dict[str, bool]) -> None:
    assert verdicts(Story(goes_on=True, end_s=20.0), down_s=down_s, **sources) == ()


@pytest.mark.parametrize("sources", [BEATS, BOTH])
def test_a_hang_before_the_old_count_is_reached_is_found(sources: dict[str, bool]) -> None:
    (verdict,) = verdicts(Story(behind=2, stop_s=4.0, end_s=14.0), down_s=5.0, **sources)
    assert (verdict.fault, verdict.node, verdict.isolate) == (FaultClass.NONCOMM_HANG, 2, True)
    assert 21.0 <= verdict.onset_s <= 21.5
    assert verdict.detected_s <= 26.0


@pytest.mark.parametrize("sources", [RECORDS, BEATS, BOTH])
def test_a_cut_after_it_is_found(sources: dict[str, bool]) -> None:
    cut = tuple((end, 1) for end in (0, 2)) + tuple((1, end) for end in (0, 2))
    (verdict,) = verdicts(Story(dead=cut, stop_s=4.0, end_s=14.0), down_s=5.0, **sources)
    assert (verdict.fault, verdict.node) == (FaultClass.COMM_HANG, 1)
    assert 21.0 < verdict.detected_s <= 24.0


def collective(seq: int, arrived_s: float, group: str = "") -> Observation:
    return Observation(arrived_s + 0.1, 0, Collective(seq, "all_reduce", 8, arrived_s, arrived_s + 0.1, group=group), 0)


def beat(at_s: float, entered: int) -> Observation:
    return Observation(at_s, 0, Heartbeat(entered, entered, None, entered, "comm"), rank=0)


def counted(*told: Observation) -> tuple[int, int]:
    ledger = Ledger(FIRST.job)
    for seen in told:
        ledger.see(seen)
    return ledger.ranks[0].entered, ledger.ranks[0].finished


class TestOneRank:
    def test_a_record_told_twice_or_late_begins_no_new_life(self) -> None:
        told = [collective(seq, float(seq)) for seq in (1, 2, 3)]
        assert counted(*told, told[0], told[2], told[1]) == (3, 3)

    def test_a_heartbeat_that_comes_late_begins_none(self) -> None:
        assert counted(beat(1.0, 10), beat(2.0, 20), beat(1.5, 15)) == (20, 20)

    def test_a_heartbeat_behind_the_records_begins_none(self) -> None:
        assert counted(beat(1.0, 1), collective(9, 1.2), beat(1.5, 5), beat(2.0, 9)) == (9, 9)

    def test_what_the_old_life_said_and_comes_late_is_left(self) -> None:
        assert counted(collective(50, 5.0), beat(5.0, 50), beat(9.0, 2), collective(51, 5.2), beat(8.0, 51)) == (2, 2)

    def test_a_dump_of_a_new_life_counts_for_it(self) -> None:
        ledger = Ledger(FIRST.job)
        for at_s, entered in ((1.0, 100), (9.0, 4)):
            ledger.see(Observation(at_s, 0, Flight("0", (), entered, -1, entered - 1, "send", None), rank=0))
            ledger.see(Observation(at_s, 0, Counts("0xab", 2, (("AllReduce", entered),), "ok"), rank=0))
        assert [ledger.groups[name].entered[0] for name in ("0", "ras:0xab")] == [4, 4]

    def test_a_group_that_is_made_anew_counts_from_the_start(self) -> None:
        ledger = Ledger(FIRST.job)
        for seen in (collective(70, 5.0, "0-3"), collective(1, 6.0, "0-3")):
            ledger.see(seen)
        assert (ledger.groups["0-3"].entered, ledger.groups["0-3"].finished) == ({0: 1}, {0: 1})
