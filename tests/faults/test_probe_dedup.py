"""A train counts once, whoever tells of it, in whatever order."""

from hypothesis import given
from hypothesis import strategies as st

from faults.observations import Observation, Probe, ProbeReturned, SocketPoll
from faults.probe_dedup import MAX_OPEN, SAME_S, ProbeDeduplicator

NODES = 4
SIZE_BYTES = 65_536


def ends(nodes: int = NODES, most: int = 16) -> ProbeDeduplicator:
    return ProbeDeduplicator(nodes, most=most)


def by_receiver(number: int, *, source: int = 0, target: int = 1, moved_s: float = 0.0) -> Observation:
    sent_s = 10.0 + number / 2 + moved_s
    return Observation(sent_s + 0.25, target, Probe(SIZE_BYTES, sent_s, sent_s + 0.002, 0.001), peer=source)


def by_sender(number: int, *, source: int = 0, target: int = 1, moved_s: float = 0.0) -> Observation:
    sent_s = 10.0 + number / 2 + moved_s
    return Observation(sent_s + 0.5, source, ProbeReturned(SIZE_BYTES, sent_s, sent_s + 0.002, 0.001), peer=target)


def test_a_word_counts_as_the_reading_of_its_pair_and_direction() -> None:
    seen = by_sender(0, source=2, target=3)
    assert ends().reading(seen) == by_receiver(0, source=2, target=3)._replace(at_s=seen.at_s)


def test_the_two_directions_of_a_pair_are_two() -> None:
    both = ends()
    assert both.reading(by_receiver(0)) is not None
    assert both.reading(by_sender(0, source=1, target=0)) is not None
    assert both.reading(by_sender(0)) is None


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.floats(-SAME_S / 2, SAME_S / 2), st.floats(0.0, 3.0)), max_size=40
    )
)
def test_each_train_that_any_end_tells_of_counts_once_however_late_the_other_is(
    trains: list[tuple[bool, bool, float, float]],
) -> None:
    """Of each train: who tells of it, how far clocks are taken to be apart, and by how much the sender is later."""
    said: list[tuple[float, Observation]] = []
    for number, (receiver, sender, moved_s, later_s) in enumerate(trains):
        if receiver:
            said.append((number / 2, by_receiver(number)))
        if sender:
            said.append((number / 2 + later_s, by_sender(number, moved_s=moved_s)))
    both, counted = ends(), 0
    for _at_s, seen in sorted(said, key=lambda each: each[0]):
        counted += both.reading(seen) is not None
    assert counted == sum(receiver or sender for receiver, sender, *_ in trains)


def test_one_end_that_tells_of_trains_at_the_same_moment_is_believed() -> None:
    both = ends()
    assert [both.reading(by_receiver(0)) is not None for _ in range(2)] == [True, True]


def test_what_is_no_reading_of_the_job_is_none() -> None:
    for source, target in ((0, NODES), (NODES, 0), (1, 1), (-1, 0)):
        assert ends().reading(by_sender(0, source=source, target=target)) is None
        assert ends().reading(by_receiver(0, source=source, target=target)) is None
    assert ends().reading(Observation(1.0, 0, SocketPoll(3))) is None
    assert ends().reading(by_sender(0)._replace(peer=None)) is None


def test_of_more_pairs_than_are_kept_the_receivers_are_believed() -> None:
    both = ends(most=1)
    for number in range(3 * MAX_OPEN):
        assert both.reading(by_sender(number)) is not None
        assert both.reading(by_receiver(number, target=2)) is not None
        assert both.reading(by_sender(number, target=2)) is None
    assert len(both) == 1 + MAX_OPEN


def test_what_both_ends_have_told_of_is_kept_no_longer() -> None:
    both = ends()
    for number in range(8):
        both.reading(by_receiver(number))
    for number in range(8):
        both.reading(by_sender(number))
    assert len(both) == 1
