"""The deduplicator counts each train once, whichever end reports it and in any order."""

from hypothesis import given
from hypothesis import strategies as st

from faults.observations import Observation, Probe, ProbeReturned, SocketPoll
from faults.probe_dedup import MAX_OPEN, SAME_S, ProbeDeduplicator

NODES = 4
SIZE_BYTES = 65_536


def dedup_of(nodes: int = NODES, most: int = 16) -> ProbeDeduplicator:
    return ProbeDeduplicator(nodes, max_pairs=most)


def by_receiver(number: int, *, source: int = 0, target: int = 1, moved_s: float = 0.0) -> Observation:
    sent_s = 10.0 + number / 2 + moved_s
    return Observation(sent_s + 0.25, target, Probe(SIZE_BYTES, sent_s, sent_s + 0.002, 0.001), peer=source)


def by_sender(number: int, *, source: int = 0, target: int = 1, moved_s: float = 0.0) -> Observation:
    sent_s = 10.0 + number / 2 + moved_s
    return Observation(sent_s + 0.5, source, ProbeReturned(SIZE_BYTES, sent_s, sent_s + 0.002, 0.001), peer=target)


def test_a_sender_report_counts_as_the_reading_of_its_pair_and_direction() -> None:
    observation = by_sender(0, source=2, target=3)
    assert dedup_of().reading(observation) == by_receiver(0, source=2, target=3)._replace(at_s=observation.at_s)


def test_the_two_directions_of_a_pair_count_separately() -> None:
    deduplicator = dedup_of()
    assert deduplicator.reading(by_receiver(0)) is not None
    assert deduplicator.reading(by_sender(0, source=1, target=0)) is not None
    assert deduplicator.reading(by_sender(0)) is None


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.floats(-SAME_S / 2, SAME_S / 2), st.floats(0.0, 3.0)), max_size=40
    )
)
def test_a_train_counts_once_however_late_the_other_end_reports_it(
    trains: list[tuple[bool, bool, float, float]],
) -> None:
    """Each train: the ends that report it, their clock offset, and the delay of the sender's report."""
    reports: list[tuple[float, Observation]] = []
    for number, (receiver, sender, moved_s, later_s) in enumerate(trains):
        if receiver:
            reports.append((number / 2, by_receiver(number)))
        if sender:
            reports.append((number / 2 + later_s, by_sender(number, moved_s=moved_s)))
    deduplicator, counted = dedup_of(), 0
    for _at_s, observation in sorted(reports, key=lambda each: each[0]):
        counted += deduplicator.reading(observation) is not None
    assert counted == sum(receiver or sender for receiver, sender, *_ in trains)


def test_two_reports_of_one_end_for_the_same_time_both_count() -> None:
    deduplicator = dedup_of()
    assert [deduplicator.reading(by_receiver(0)) is not None for _ in range(2)] == [True, True]


def test_observations_that_are_no_reading_of_the_job_give_none() -> None:
    for source, target in ((0, NODES), (NODES, 0), (1, 1), (-1, 0)):
        assert dedup_of().reading(by_sender(0, source=source, target=target)) is None
        assert dedup_of().reading(by_receiver(0, source=source, target=target)) is None
    assert dedup_of().reading(Observation(1.0, 0, SocketPoll(3))) is None
    assert dedup_of().reading(by_sender(0)._replace(peer=None)) is None


def test_beyond_the_pair_limit_only_receiver_reports_count() -> None:
    deduplicator = dedup_of(most=1)
    for number in range(3 * MAX_OPEN):
        assert deduplicator.reading(by_sender(number)) is not None
        assert deduplicator.reading(by_receiver(number, target=2)) is not None
        assert deduplicator.reading(by_sender(number, target=2)) is None
    assert len(deduplicator) == 1 + MAX_OPEN


def test_trains_that_both_ends_reported_are_deleted() -> None:
    deduplicator = dedup_of()
    for number in range(8):
        deduplicator.reading(by_receiver(number))
    for number in range(8):
        deduplicator.reading(by_sender(number))
    assert len(deduplicator) == 1
