"""One diagnosis per fault: episodes, merging, suppression during a standstill, and bounded memory."""

import pytest

from faults.diagnosis import Direction, FaultClass, Scope
from faults.monitor import FaultMonitor, MonitorSettings
from faults.monitor.dedup import FaultDedup, merged
from faults.monitor.episode import Episode
from faults.observations import Observation
from tests.faults.diagnoses import diagnosis
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
        seen = FaultDedup(10.0)
        seen.update([diagnosis(scope=Scope.RANK)], now_s=2.0)
        seen.update([diagnosis(scope=Scope.NODE, detected_s=3.0)], now_s=3.0)
        assert len(seen.diagnoses()) == 1

    def test_a_link_has_no_order_of_its_ends(self) -> None:
        seen = FaultDedup(10.0)
        seen.update([LINK], now_s=2.0)
        seen.update([LINK.model_copy(update={"node": 0, "peer": 1})], now_s=3.0)
        assert len(seen.diagnoses()) == 1

    def test_the_same_diagnosis_much_later_is_another_fault(self) -> None:
        seen = FaultDedup(10.0)
        for now_s in (2.0, 12.1):
            seen.update([diagnosis(detected_s=now_s)], now_s=now_s)
        assert [fault.detected_s for fault in seen.diagnoses()] == [2.0, 12.1]

    @pytest.mark.parametrize("fault", [FaultClass.COMM_HANG, FaultClass.COMM_SLOW])
    def test_a_link_is_withdrawn_when_its_node_hangs_or_is_slow(self, fault: FaultClass) -> None:
        seen = FaultDedup(10.0)
        seen.update([diagnosis(fault, scope=Scope.LINK, node=1, peer=0), diagnosis(fault, 3)], now_s=2.0)
        seen.update([diagnosis(fault, detected_s=2.5)], now_s=2.5)
        assert [(each.scope, each.node) for each in seen.diagnoses()] == [(Scope.NODE, 3), (Scope.NODE, 1)]

    def test_a_link_that_is_diagnosed_beside_its_node_stays(self) -> None:
        seen = FaultDedup(10.0)
        link = diagnosis(FaultClass.COMM_SLOW, scope=Scope.LINK, node=1, peer=0)
        seen.update([link], now_s=2.0)
        seen.update([link, diagnosis(FaultClass.COMM_SLOW, detected_s=2.5)], now_s=2.5)
        assert [fault.scope for fault in seen.diagnoses()] == [Scope.LINK, Scope.NODE]

    def test_a_flood_of_faults_is_bounded(self) -> None:
        seen = FaultDedup(10.0)
        for node in range(5000):
            seen.update([diagnosis(node=node)], now_s=2.0)
        assert len(seen.diagnoses()) == 1024


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

    def test_it_ends_when_the_job_continues(self) -> None:
        episode = Episode()
        episode.add([LINK], now_s=2.0)
        assert not episode.over(1.5)
        assert episode.over(2.5)


class TestLive:
    def test_a_hang_that_ends_is_inactive_and_stays_reported(self) -> None:
        hangs, goes_on = Story(behind=2, end_s=9.0), Story(goes_on=True, end_s=12.0)
        watcher = FaultMonitor(hangs.job, ONLY)
        for seen in [*hangs.told(), *(seen for seen in goes_on.told() if seen.at_s >= 9.0)]:
            watcher.observe(seen)
            watcher.evaluate(seen.at_s)
        assert watcher.evaluate(12.0) == ()
        assert [fault.node for fault in watcher.diagnoses()] == [2]

    def test_a_standstill_is_never_diagnosed_as_slow(self) -> None:
        story = Story(nodes=8, behind=2, end_s=30.0)
        watcher = FaultMonitor(story.job)
        for seen in story.told():
            watcher.observe(seen)
            for found in watcher.evaluate(seen.at_s):
                assert found.fault not in (FaultClass.COMM_SLOW, FaultClass.NONCOMM_SLOW) or seen.at_s < 5.0

    @pytest.mark.parametrize("node", [-1, 4, 10**9])
    def test_observations_that_do_not_fit_the_job_are_ignored(self, node: int) -> None:
        story = Story(goes_on=True, end_s=2.0)
        watcher = FaultMonitor(story.job, ONLY)
        for seen in story.told():
            watcher.observe(Observation(seen.at_s, node, seen.values, seen.rank, seen.peer))
            watcher.observe(Observation(seen.at_s, 0, seen.values, node, node))
        assert watcher.evaluate(2.0) == ()

    def test_a_repeated_evaluation_changes_nothing(self) -> None:
        story = Story(behind=2, end_s=9.0)
        often, seldom = FaultMonitor(story.job, ONLY), FaultMonitor(story.job, ONLY)
        for seen in story.told():
            often.observe(seen)
            seldom.observe(seen)
            often.evaluate(seen.at_s)
            often.evaluate(seen.at_s)
            seldom.evaluate(seen.at_s)
        assert often.diagnoses() == seldom.diagnoses()
