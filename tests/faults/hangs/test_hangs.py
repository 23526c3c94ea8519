"""Hangs in generated jobs: the culprit, the time of detection, and pauses that are no hang."""

import pytest

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.monitor import MonitorSettings
from faults.observations import Collective, Observation, Values
from faults.replay import replay
from tests.faults.stories import POLL_S, Story

HANG = Story()
QUICK_S = 3.0


HANGS_ONLY = MonitorSettings(slow=None)


def diagnoses(story: Story) -> tuple[Diagnosis, ...]:
    return replay(story.job, story.observations(), HANGS_ONLY)


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

    def test_a_reported_checkpoint_extends_the_timeout(self) -> None:
        assert diagnoses(HANG.but(behind=0, phase="checkpoint", end_s=15.0)) == ()

    def test_without_records_heartbeats_show_the_hang(self) -> None:
        assert only(HANG.but(behind=3, records=False)).node == 3


class TestFrozen:
    def test_a_rank_with_unread_bytes_and_no_heartbeats_is_isolated(self) -> None:
        found = only(HANG.but(silent=1, unread=1))
        assert (found.fault, found.node, found.isolate) == (FaultClass.NONCOMM_HANG, 1, True)
        assert found.detected_s - HANG.stop_s <= QUICK_S

    def test_a_stopped_process_is_sufficient_evidence(self) -> None:
        found = only(HANG.but(silent=1, stopped=1))
        assert (found.node, found.isolate) == (1, True)
        assert "process" in found.evidence

    def test_unread_bytes_of_a_rank_with_heartbeats_do_not_isolate(self) -> None:
        # A communication thread without a core shows the same counters for seconds.
        assert diagnoses(HANG.but(unread=1, end_s=HANG.stop_s + 4.5)) == ()
        assert not only(HANG.but(unread=1)).isolate


class TestSilence:
    def test_a_missing_heartbeat_alone_never_isolates(self) -> None:
        found = diagnoses(HANG.but(silent=2, behind=2))
        assert all(not diagnosis.isolate for diagnosis in found)

    @pytest.mark.parametrize("node", range(4))
    def test_a_silent_agent_is_no_hang(self, node: int) -> None:
        observations = [
            observation
            for observation in Story(goes_on=True).observations()
            if observation.node != node or observation.at_s < 5.0
        ]
        assert replay(HANG.job, observations, HANGS_ONLY) == ()

    def test_silence_of_all_agents_isolates_no_node(self) -> None:
        observations = [
            observation
            for observation in Story(goes_on=True).observations()
            if observation.at_s < 5.0 or observation.at_s > 15.0
        ]
        assert all(not diagnosis.isolate for diagnosis in replay(HANG.job, observations, HANGS_ONLY))

    def test_late_polls_of_a_busy_machine_are_no_link_cut(self) -> None:
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

    def test_a_link_cut_in_both_directions_is_diagnosed_with_both_directions(self) -> None:
        found = only(HANG.but(dead=((1, 0), (0, 1))))
        assert (found.scope, found.direction) == (Scope.LINK, Direction.BOTH)

    def test_a_cut_off_node_is_diagnosed_as_the_node(self) -> None:
        found = only(HANG.but(dead=((1, 0), (0, 1), (1, 2), (2, 1))))
        assert (found.scope, found.node, found.direction, found.isolate) == (Scope.NODE, 1, Direction.BOTH, True)

    @pytest.mark.parametrize(
        ("dead", "direction"), [(((1, 0), (1, 2)), Direction.TX), (((0, 1), (2, 1)), Direction.RX)]
    )
    def test_a_node_cut_off_in_one_direction_is_diagnosed_with_that_direction(
        self, dead: tuple[tuple[int, int], ...], direction: Direction
    ) -> None:
        found = only(HANG.but(dead=dead))
        assert (found.scope, found.node, found.direction) == (Scope.NODE, 1, direction)

    def test_cuts_of_two_links_without_a_common_node_are_two_diagnoses(self) -> None:
        found = diagnoses(Story(nodes=6, dead=((1, 0), (4, 3))))
        assert {(diagnosis.node, diagnosis.peer) for diagnosis in found} == {(1, 0), (4, 3)}

    @pytest.mark.parametrize("dead", [(1, 0), (0, 1)])
    def test_reports_of_one_end_give_the_pair_without_the_direction(self, dead: tuple[int, int]) -> None:
        # For the sender, lost data and lost acknowledgements are indistinguishable.
        observations = [
            observation
            for observation in HANG.but(dead=(dead,)).observations()
            if not (observation.node == dead[1] and observation.at_s >= 5.0)
        ]
        (found,) = replay(HANG.job, observations, HANGS_ONLY)
        assert (found.scope, {found.node, found.peer}, found.direction) == (Scope.LINK, {0, 1}, None)
        assert "only one end was observed" in found.reason


def test_the_hang_timeout_grows_with_the_step_time() -> None:
    # The same stall in a job ten times slower: 4 steps of 2 s.
    slow = [
        observation._replace(at_s=observation.at_s * 10, values=_slower(observation.values))
        for observation in HANG.but(behind=2, end_s=8.0).observations()
        if observation.rank is not None
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
    observations = [observation for observation in story.observations() if isinstance(observation.values, Collective)]
    late = [_with_a_late_step(observation) for observation in observations]
    then = HANG.but(behind=0, stop_s=10.0, end_s=14.9).observations()
    rest = [observation for observation in then if observation.at_s >= 10.0 and observation.rank is not None]
    assert replay(HANG.job, [*late, *rest], HANGS_ONLY) == ()


def _with_a_late_step(observation: Observation) -> Observation:
    values = observation.values
    assert isinstance(values, Collective)
    if values.seq == 20 and observation.rank != 0:
        return observation._replace(values=values._replace(arrived_s=values.arrived_s - 3.0))
    return observation


def test_generated_jobs_poll_at_the_default_period() -> None:
    assert HANG.job.look_period_s == POLL_S
