"""Bundles: the same verdicts bit for bit, nothing believed that was changed, no more kept than was asked."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.bundle import Tape, is_bundle, read_bundle, write_bundle
from faults.observations import Observation
from faults.replay import Act, acts, replay
from faults.watcher import Watcher, WatcherSettings
from fleet.documents import RuleError
from tests.faults.stories import Story

ONLY = WatcherSettings(slow=None)
HANG = Story(behind=2, end_s=8.0)


def lines_of(story: Story = HANG, settings: WatcherSettings = ONLY) -> list[str]:
    what = acts(story.told(), judge_s=settings.judge_s)
    return list(write_bundle(story.job, settings, what, version="1.2.3"))


HANG_LINES = lines_of()


@given(
    st.lists(
        st.tuples(st.integers(0, len(HANG.told()) - 1), st.floats(-1e3, 1e3, allow_nan=False), st.booleans()),
        max_size=60,
    )
)
def test_whatever_was_told_in_whatever_order_it_says_the_same_again(calls: list[tuple[int, float, bool]]) -> None:
    told = HANG.told()
    what: list[Act] = [at_s if judge else told[index]._replace(at_s=at_s) for index, at_s, judge in calls]
    watcher = Watcher(HANG.job, ONLY)
    for act in what:
        if isinstance(act, Observation):
            watcher.see(act)
        else:
            watcher.judge(act)
    bundle = read_bundle(write_bundle(HANG.job, ONLY, what, version="0"))
    assert bundle.acts == tuple(what)
    assert bundle.verdicts == watcher.verdicts()
    assert bundle.holds


def test_a_hang_is_told_again_bit_for_bit() -> None:
    bundle = read_bundle(HANG_LINES)
    assert bundle.verdicts == replay(HANG.job, HANG.told(), ONLY)
    assert bundle.verdicts
    assert bundle.holds
    assert list(write_bundle(bundle.job, bundle.settings, bundle.acts, version=bundle.version)) == HANG_LINES


def test_slowness_too() -> None:
    story = Story(nodes=4, goes_on=True, end_s=4.0)
    assert read_bundle(lines_of(story, WatcherSettings())).holds


def test_bytes_read_as_text_does() -> None:
    assert read_bundle([line.encode() for line in HANG_LINES]) == read_bundle(HANG_LINES)


@pytest.mark.parametrize("number", [0, 1, len(HANG_LINES) // 2, -2])
def test_a_changed_line_is_refused(number: int) -> None:
    lines = list(HANG_LINES)
    lines[number] = lines[number].replace("0", "7", 1)
    with pytest.raises(RuleError, match="line"):
        read_bundle(lines)


@pytest.mark.parametrize("kept", [0, 1, 10, len(HANG_LINES) - 2, len(HANG_LINES) - 1])
def test_a_part_of_one_is_refused(kept: int) -> None:
    with pytest.raises(RuleError):
        read_bundle(HANG_LINES[:kept])


@pytest.mark.parametrize(
    "line",
    ["", "{", "[" * 100_000, '{"bundle":2}', "null", "[]", '{"bundle":1}', "\x00", "x" * 2_000_000],
)
def test_what_is_no_bundle_is_refused(line: str) -> None:
    with pytest.raises(RuleError):
        read_bundle([line])


def test_a_job_that_cannot_be_is_refused() -> None:
    head = json.loads(HANG_LINES[0])
    head["job"]["rank_node"] = [0, 99]
    resummed = list(write_bundle(replace(HANG.job, rank_node=(0, 1, 2, 3)), ONLY, (), version="0"))
    resummed[0] = json.dumps(head, sort_keys=True, separators=(",", ":")) + "\n"
    with pytest.raises(RuleError):
        read_bundle(resummed)


def test_a_tape_keeps_the_newest_and_counts_what_it_dropped() -> None:
    tape = Tape(most=3)
    for number in range(5):
        tape.add(float(number))
    assert (list(tape), tape.dropped) == ([2.0, 3.0, 4.0], 2)


def test_it_is_known_by_its_first_line() -> None:
    assert is_bundle(HANG_LINES[0])
    assert not any(map(is_bundle, ("", "[]", "{}", "[" * 100_000)))
