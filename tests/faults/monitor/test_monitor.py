"""One diagnosis per fault: episodes, merging, suppression during a stall, and bounded memory."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.monitor import FaultMonitor, MonitorSettings
from faults.monitor.dedup import FaultDedup, merged
from faults.monitor.monitor import Episode, combine
from faults.observations import Observation
from faults.simulator.fault_schedule import FaultEvent, FaultKind
from tests.faults.diagnoses import diagnosis
from tests.faults.large_jobs.streams import WINDOW_S, Stream, cluster, job_of
from tests.faults.stories import Story

ONLY = MonitorSettings(slow=None)


LINK = diagnosis(scope=Scope.LINK, node=1, peer=0, direction=Direction.FORWARD)


class TestMerging:
    def test_the_first_times_and_the_more_confident_diagnosis_are_kept(self) -> None:
        later = diagnosis(detected_s=3.0, onset_s=2.5, confidence=0.99, isolate=True, reason="now surer")
        both = merged(diagnosis(), later)
        assert (both.onset_s, both.detected_s, both.isolate, both.reason) == (1.0, 2.0, True, "now surer")

    def test_confidence_never_decreases(self) -> None:
        sure = diagnosis(confidence=0.99, isolate=True)
        assert merged(sure, diagnosis(detected_s=3.0)) == sure

    def test_a_rank_and_its_node_are_one_place(self) -> None:
        dedup = FaultDedup(10.0)
        dedup.update([diagnosis(scope=Scope.RANK)], now_s=2.0)
        dedup.update([diagnosis(scope=Scope.NODE, detected_s=3.0)], now_s=3.0)
        assert len(dedup.diagnoses()) == 1

    def test_the_order_of_the_ends_of_a_link_does_not_matter(self) -> None:
        dedup = FaultDedup(10.0)
        dedup.update([LINK], now_s=2.0)
        dedup.update([LINK.model_copy(update={"node": 0, "peer": 1})], now_s=3.0)
        assert len(dedup.diagnoses()) == 1

    def test_the_same_diagnosis_much_later_is_another_fault(self) -> None:
        dedup = FaultDedup(10.0)
        for now_s in (2.0, 12.1):
            dedup.update([diagnosis(detected_s=now_s)], now_s=now_s)
        assert [fault.detected_s for fault in dedup.diagnoses()] == [2.0, 12.1]

    @pytest.mark.parametrize("fault", [FaultClass.COMM_HANG, FaultClass.COMM_SLOW])
    def test_a_link_is_withdrawn_when_its_node_hangs_or_is_slow(self, fault: FaultClass) -> None:
        dedup = FaultDedup(10.0)
        dedup.update([diagnosis(fault, scope=Scope.LINK, node=1, peer=0), diagnosis(fault, 3)], now_s=2.0)
        dedup.update([diagnosis(fault, detected_s=2.5)], now_s=2.5)
        assert [(each.scope, each.node) for each in dedup.diagnoses()] == [(Scope.NODE, 3), (Scope.NODE, 1)]

    def test_a_link_that_is_diagnosed_beside_its_node_stays(self) -> None:
        dedup = FaultDedup(10.0)
        link = diagnosis(FaultClass.COMM_SLOW, scope=Scope.LINK, node=1, peer=0)
        dedup.update([link], now_s=2.0)
        dedup.update([link, diagnosis(FaultClass.COMM_SLOW, detected_s=2.5)], now_s=2.5)
        assert [fault.scope for fault in dedup.diagnoses()] == [Scope.LINK, Scope.NODE]

    def test_a_flood_of_faults_is_bounded(self) -> None:
        dedup = FaultDedup(10.0)
        for node in range(5000):
            dedup.update([diagnosis(node=node)], now_s=2.0)
        assert len(dedup.diagnoses()) == 1024


class TestEpisodes:
    def test_a_node_replaces_its_link(self) -> None:
        episode = Episode()
        episode.add([LINK], now_s=2.0)
        assert episode.add([diagnosis(confidence=0.97, isolate=True)], now_s=2.5) == (
            diagnosis(confidence=0.97, isolate=True),
        )

    def test_a_link_of_a_diagnosed_node_is_ignored(self) -> None:
        episode = Episode()
        node = diagnosis(confidence=0.97, isolate=True)
        episode.add([node], now_s=2.0)
        assert episode.add([LINK.model_copy(update={"confidence": 0.97})], now_s=2.5) == (node,)

    def test_a_weaker_diagnosis_of_another_place_is_ignored(self) -> None:
        episode = Episode()
        episode.add([diagnosis(confidence=0.97, isolate=True)], now_s=2.0)
        assert len(episode.add([diagnosis(FaultClass.NONCOMM_HANG, node=3)], now_s=2.5)) == 1

    def test_two_equally_confident_diagnoses_are_both_kept(self) -> None:
        episode = Episode()
        assert len(episode.add([diagnosis(isolate=True), diagnosis(node=4, isolate=True)], now_s=2.0)) == 2

    def test_an_episode_ends_when_the_job_continues(self) -> None:
        episode = Episode()
        episode.add([LINK], now_s=2.0)
        assert not episode.over(1.5)
        assert episode.over(2.5)


class TestLive:
    def test_a_hang_that_ends_is_inactive_and_stays_reported(self) -> None:
        hangs, goes_on = Story(behind=2, end_s=9.0), Story(goes_on=True, end_s=12.0)
        monitor = FaultMonitor(hangs.job, ONLY)
        for observation in [
            *hangs.observations(),
            *(observation for observation in goes_on.observations() if observation.at_s >= 9.0),
        ]:
            monitor.observe(observation)
            monitor.evaluate(observation.at_s)
        assert monitor.evaluate(12.0) == ()
        assert [fault.node for fault in monitor.diagnoses()] == [2]

    def test_a_stall_is_never_diagnosed_as_slow(self) -> None:
        story = Story(nodes=8, behind=2, end_s=30.0)
        monitor = FaultMonitor(story.job)
        for observation in story.observations():
            monitor.observe(observation)
            for found in monitor.evaluate(observation.at_s):
                assert found.fault not in (FaultClass.COMM_SLOW, FaultClass.NONCOMM_SLOW) or observation.at_s < 5.0

    @pytest.mark.parametrize("node", [-1, 4, 10**9])
    def test_observations_that_do_not_fit_the_job_are_ignored(self, node: int) -> None:
        story = Story(goes_on=True, end_s=2.0)
        monitor = FaultMonitor(story.job, ONLY)
        for observation in story.observations():
            monitor.observe(Observation(observation.at_s, node, observation.values, observation.rank, observation.peer))
            monitor.observe(Observation(observation.at_s, 0, observation.values, node, node))
        assert monitor.evaluate(2.0) == ()

    def test_a_repeated_evaluation_changes_nothing(self) -> None:
        story = Story(behind=2, end_s=9.0)
        often, seldom = FaultMonitor(story.job, ONLY), FaultMonitor(story.job, ONLY)
        for observation in story.observations():
            often.observe(observation)
            seldom.observe(observation)
            often.evaluate(observation.at_s)
            often.evaluate(observation.at_s)
            seldom.evaluate(observation.at_s)
        assert often.diagnoses() == seldom.diagnoses()


SMALL = cluster()
HEALTHY = 13  # windows
FROM_S = HEALTHY * WINDOW_S


def slow(scope: Scope = Scope.NODE, node: int | None = 3, **more: object) -> Diagnosis:
    return diagnosis(
        FaultClass.COMM_SLOW, node, scope=scope, **{"onset_s": 100.0, "isolate": scope is Scope.NODE, **more}
    )


SLOW_LINK = slow(Scope.LINK, node=3, peer=4, direction=Direction.FORWARD)
LEAF = slow(Scope.LEAF, None, switch="rack 1")
NOT_ISOLATED = slow(isolate=False)
LATE = diagnosis(FaultClass.NONCOMM_SLOW, 7, isolate=True)


@pytest.mark.parametrize(
    ("quick", "fit", "expected"),
    [
        ([slow()], [], [NOT_ISOLATED]),  # reported at once, isolated when the fit agrees
        ([slow()], [slow(detected_s=120.0)], [slow()]),
        ([NOT_ISOLATED], [slow()], [NOT_ISOLATED]),
        ([], [slow()], [slow()]),  # too mild for the quick detector
        ([slow()], [LEAF], [LEAF]),
        ([slow(), slow(node=9)], [LEAF, slow(node=9)], [slow(node=9), LEAF]),
        ([SLOW_LINK], [slow()], [SLOW_LINK]),  # one diagnosis per fault
        ([SLOW_LINK], [slow(node=9)], [SLOW_LINK, slow(node=9)]),
        ([LATE], [LEAF], [LATE, LEAF]),  # a longer compute time is not the switch's fault
        ([LATE], [LATE], [LATE]),
    ],
)
def test_diagnoses_of_both_detectors_are_merged_per_fault(
    quick: Sequence[Diagnosis], fit: Sequence[Diagnosis], expected: Sequence[Diagnosis]
) -> None:
    assert list(combine(quick, fit)) == expected


def test_links_that_became_slow_with_a_switch_are_replaced_by_it() -> None:
    dedup, others = FaultDedup(10.0), slow(node=9, isolate=False, onset_s=60.0)
    dedup.update([NOT_ISOLATED, SLOW_LINK.model_copy(update={"node": 5}), slow(node=6), others], now_s=118.0)
    dedup.update([LEAF], now_s=120.0)
    assert [(each.scope, each.node) for each in dedup.diagnoses()] == [
        (Scope.NODE, 6),  # the fit was certain of it
        (Scope.NODE, 9),  # slow since long before
        (Scope.LEAF, None),
    ]


def test_links_are_replaced_when_the_fit_misses_the_switch_for_a_window() -> None:
    dedup = FaultDedup(10.0)
    for now_s, found in ((120.0, [LEAF]), (125.0, [NOT_ISOLATED, SLOW_LINK]), (130.0, [LEAF])):
        dedup.update(found, now_s=now_s)
    assert [each.scope for each in dedup.diagnoses()] == [Scope.LEAF]


def test_a_link_that_became_slow_long_after_a_switch_is_a_separate_fault() -> None:
    dedup = FaultDedup(10.0)
    for now_s, found in (
        (120.0, [LEAF]),
        (164.0, [LEAF, SLOW_LINK.model_copy(update={"onset_s": 160.0})]),
        (170.0, [LEAF]),
    ):
        dedup.update(found, now_s=now_s)
    assert [each.scope for each in dedup.diagnoses()] == [Scope.LEAF, Scope.LEAF, Scope.LINK]


class TwoMonitors:
    """Two monitors of one stream, with leaves and without."""

    def __init__(self, *faults: FaultEvent, longer: float = 1.4) -> None:
        job = job_of(SMALL)
        self.with_leaves, self.without = FaultMonitor(job), FaultMonitor(replace(job, fabric=None))
        self.isolated_s: dict[int | None, float] = {}
        stream, now_s = Stream(SMALL, seed=2, polls=20), 0.0
        for one in (*stream.windows(HEALTHY), *stream.windows(5, faults, longer=longer)):
            while one.at_s > now_s + (period_s := 2.5 if now_s < FROM_S else 0.25):
                now_s += period_s
                for each in self.with_leaves.evaluate(now_s):
                    if each.isolate:
                        self.isolated_s.setdefault(each.node, now_s)
                self.without.evaluate(now_s)
            self.with_leaves.observe(one)
            self.without.observe(one)


def hardware(monitor: FaultMonitor) -> list[Diagnosis]:
    return [each for each in monitor.diagnoses() if each.scope is not Scope.WORKLOAD]


def test_a_slow_nic_is_diagnosed_equally_early_and_isolated_when_the_fit_agrees() -> None:
    monitors = TwoMonitors(FaultEvent(FaultKind.SLOW_NIC, 3, FROM_S, 1e9, 2.0))
    (found,), (other,) = hardware(monitors.with_leaves), hardware(monitors.without)
    assert found.node == other.node == 3
    assert found.detected_s == other.detected_s <= FROM_S + 10.0
    assert list(monitors.isolated_s) == [3]
    assert monitors.isolated_s[3] > FROM_S + 15.0


def test_a_slow_leaf_isolates_none_of_its_nodes() -> None:
    monitors = TwoMonitors(FaultEvent(FaultKind.LEAF, 0, FROM_S, 1e9, 2.5))
    assert [each.switch for each in hardware(monitors.with_leaves)] == ["rack 0"]
    nodes = hardware(monitors.without)
    assert len(nodes) > 1  # a single diagnosed node would be isolated
    assert not monitors.isolated_s
    assert not any(each.isolate for each in nodes)


def test_two_slow_nics_of_two_known_leaves_are_isolated() -> None:
    faults = [FaultEvent(FaultKind.SLOW_NIC, nic, FROM_S, 1e9, 2.0) for nic in (3, 20)]
    monitors = TwoMonitors(*faults, longer=1.9)
    assert set(monitors.isolated_s) == {3, 20}
    assert not any(each.isolate for each in hardware(monitors.without))  # a switch can be the cause
