"""Hangs in generated jobs: the culprit, the time of detection, and what is no hang."""

import pytest

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.monitor import MonitorSettings
from faults.observations import Collective, Observation, Values
from faults.replay import replay
from tests.faults.stories import LOOK_S, Story

HANG = Story()
QUICK_S = 3.0


HANGS_ONLY = MonitorSettings(slow=None)


def diagnoses(story: Story) -> tuple[Diagnosis, ...]:
    return replay(story.job, story.told(), HANGS_ONLY)


def only(story: Story) -> Diagnosis:
    (found,) = diagnoses(story)
    return found


def test_a_healthy_job_has_no_hang() -> None:
    assert diagnoses(Story(goes_on=True)) == ()


class TestOwnCode:
    def test_the_missing_rank_is_diagnosed_within_three_seconds(self) -> None:
        found = only(HANG.but(behind=2))
        assert (found.fault, found.scope, found.node) == (FaultClass.NONCOMM_HANG, Scope.RANK, 2)
        assert found.onset_s == pytest.approx(HANG.stop_s, abs=0.3)
        assert found.detected_s - HANG.stop_s <= QUICK_S

    def test_only_a_lasting_hang_isolates(self) -> None:
        assert not only(HANG.but(behind=2, end_s=9.0)).isolate
        assert only(HANG.but(behind=2, end_s=15.0)).isolate

    def test_a_reported_checkpoint_has_more_time(self) -> None:
        assert diagnoses(HANG.but(behind=0, phase="checkpoint", end_s=15.0)) == ()

    def test_without_records_heartbeats_show_the_hang(self) -> None:
        assert only(HANG.but(behind=3, records=False)).node == 3


class TestFrozen:
    def test_a_rank_without_heartbeats_and_with_unread_bytes(self) -> None:
        found = only(HANG.but(silent=1, unread=1))
        assert (found.fault, found.node, found.isolate) == (FaultClass.NONCOMM_HANG, 1, True)
        assert found.detected_s - HANG.stop_s <= QUICK_S

    def test_a_stopped_process_is_sufficient_evidence(self) -> None:
        found = only(HANG.but(silent=1, stopped=1))
        assert (found.node, found.isolate) == (1, True)
        assert "process" in found.evidence

    def test_unread_bytes_of_a_rank_with_heartbeats_do_not_isolate(self) -> None:
        # A communication thread without a core can look like this for seconds.
        assert diagnoses(HANG.but(unread=1, end_s=HANG.stop_s + 4.5)) == ()
        assert not only(HANG.but(unread=1)).isolate


class TestSilence:
    def test_a_missing_heartbeat_alone_never_isolates(self) -> None:
        found = diagnoses(HANG.but(silent=2, behind=2))
        assert all(not diagnosis.isolate for diagnosis in found)

    @pytest.mark.parametrize("node", range(4))
    def test_a_silent_agent_is_no_hang(self, node: int) -> None:
        told = [seen for seen in Story(goes_on=True).told() if seen.node != node or seen.at_s < 5.0]
        assert replay(HANG.job, told, HANGS_ONLY) == ()

    def test_all_agents_fall_silent(self) -> None:
        told = [seen for seen in Story(goes_on=True).told() if seen.at_s < 5.0 or seen.at_s > 15.0]
        assert all(not diagnosis.isolate for diagnosis in replay(HANG.job, told, HANGS_ONLY))

    def test_a_machine_too_busy_to_poll_shows_no_cut(self) -> None:
        # Two polls 2 s apart with an outstanding operation in both: two samples, not 2 s of waiting.
        busy = Story(dead=((1, 0),), end_s=7.0, late_polls=lambda at_s: 5.0 < at_s < 6.9)
        assert diagnoses(busy) == ()


class TestCuts:
    @pytest.mark.parametrize(("source", "target"), [(1, 0), (2, 1), (0, 3)])
    def test_a_link_that_loses_everything_is_diagnosed_with_its_direction(self, source: int, target: int) -> None:
        found = only(HANG.but(dead=((source, target),)))
        assert (found.fault, found.scope) == (FaultClass.COMM_HANG, Scope.LINK)
        assert (found.node, found.peer, found.direction) == (source, target, Direction.FORWARD)
        assert not found.isolate
        assert found.detected_s - HANG.stop_s <= QUICK_S

    def test_a_link_that_loses_everything_in_both_directions(self) -> None:
        found = only(HANG.but(dead=((1, 0), (0, 1))))
        assert (found.scope, found.direction) == (Scope.LINK, Direction.BOTH)

    def test_a_cut_off_node_is_diagnosed_as_the_node(self) -> None:
        found = only(HANG.but(dead=((1, 0), (0, 1), (1, 2), (2, 1))))
        assert (found.scope, found.node, found.direction, found.isolate) == (Scope.NODE, 1, Direction.BOTH, True)

    @pytest.mark.parametrize(
        ("dead", "direction"), [(((1, 0), (1, 2)), Direction.TX), (((0, 1), (2, 1)), Direction.RX)]
    )
    def test_a_node_that_loses_everything_in_one_direction(
        self, dead: tuple[tuple[int, int], ...], direction: Direction
    ) -> None:
        found = only(HANG.but(dead=dead))
        assert (found.scope, found.node, found.direction) == (Scope.NODE, 1, direction)

    def test_two_links_without_a_node_in_common(self) -> None:
        found = diagnoses(Story(nodes=6, dead=((1, 0), (4, 3))))
        assert {(diagnosis.node, diagnosis.peer) for diagnosis in found} == {(1, 0), (4, 3)}

    @pytest.mark.parametrize("dead", [(1, 0), (0, 1)])
    def test_a_single_agent_gives_the_pair_without_the_direction(self, dead: tuple[int, int]) -> None:
        # For the sender, lost data and lost acknowledgements look alike.
        told = [seen for seen in HANG.but(dead=(dead,)).told() if not (seen.node == dead[1] and seen.at_s >= 5.0)]
        (found,) = replay(HANG.job, told, HANGS_ONLY)
        assert (found.scope, {found.node, found.peer}, found.direction) == (Scope.LINK, {0, 1}, None)
        assert "only one end was observed" in found.reason


def test_patience_grows_with_the_steps_of_the_job() -> None:
    # The same standstill in a job ten times slower: 4 steps of 2 s.
    slow = [
        seen._replace(at_s=seen.at_s * 10, values=_slower(seen.values))
        for seen in HANG.but(behind=2, end_s=8.0).told()
        if seen.rank is not None
    ]
    (found,) = replay(HANG.job, slow, HANGS_ONLY)
    assert found.detected_s - 50.0 >= 8.0


def _slower(values: Values) -> Values:
    if not isinstance(values, Collective):
        return values
    return values._replace(arrived_s=values.arrived_s * 10, finished_s=(values.finished_s or 0.0) * 10)


def test_a_pause_as_long_as_an_earlier_one_is_no_hang() -> None:
    # Rank 0 is 3 s late in one step, and as late again later.
    story = Story(goes_on=True, end_s=10.0)
    told = [seen for seen in story.told() if isinstance(seen.values, Collective)]
    late = [_missing_ranks(seen) for seen in told]
    then = HANG.but(behind=0, stop_s=10.0, end_s=14.9).told()
    rest = [seen for seen in then if seen.at_s >= 10.0 and seen.rank is not None]
    assert replay(HANG.job, [*late, *rest], HANGS_ONLY) == ()


def _missing_ranks(seen: Observation) -> Observation:
    values = seen.values
    assert isinstance(values, Collective)
    if values.seq == 20 and seen.rank != 0:
        return seen._replace(values=values._replace(arrived_s=values.arrived_s - 3.0))
    return seen


def test_stories_have_four_polls_per_second() -> None:
    assert HANG.job.look_period_s == LOOK_S
