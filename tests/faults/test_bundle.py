"""Bundles: equal diagnoses bit for bit, no changed bundle is accepted, and no more than the limit is kept."""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.bundle import CallLog, proves, read_bundle, write_bundle
from faults.monitor import FaultMonitor, MonitorSettings
from faults.observations import Observation
from faults.replay import Call, calls, replay
from faults.slow.settings import SlowSettings
from fleet.documents import RuleError
from tests.faults.stories import Story

ONLY = MonitorSettings(slow=None)
HANG = Story(behind=2, end_s=8.0)


def lines_of(story: Story = HANG, settings: MonitorSettings = ONLY) -> list[str]:
    what = calls(story.told(), judge_s=settings.judge_s)
    return list(write_bundle(story.job, settings, what, version="1.2.3"))


HANG_LINES = lines_of()


@given(
    st.lists(
        st.tuples(st.integers(0, len(HANG.told()) - 1), st.floats(-1e3, 1e3, allow_nan=False), st.booleans()),
        max_size=60,
    )
)
def test_any_observations_in_any_order_replay_equally(calls: list[tuple[int, float, bool]]) -> None:
    told = HANG.told()
    what: list[Call] = [at_s if evaluate else told[index]._replace(at_s=at_s) for index, at_s, evaluate in calls]
    watcher = FaultMonitor(HANG.job, ONLY)
    for act in what:
        if isinstance(act, Observation):
            watcher.observe(act)
        else:
            watcher.evaluate(act)
    bundle = read_bundle(write_bundle(HANG.job, ONLY, what, version="0"))
    assert bundle.calls == tuple(what)
    assert bundle.diagnoses == watcher.diagnoses()
    assert bundle.holds


def test_a_hang_replays_bit_for_bit() -> None:
    bundle = read_bundle(HANG_LINES)
    assert bundle.diagnoses == replay(HANG.job, HANG.told(), ONLY)
    assert bundle.diagnoses
    assert bundle.holds
    assert list(write_bundle(bundle.job, bundle.settings, bundle.calls, version=bundle.version)) == HANG_LINES


def test_slowness_replays_bit_for_bit() -> None:
    story = Story(nodes=4, goes_on=True, end_s=4.0)
    assert read_bundle(lines_of(story, MonitorSettings())).holds


def test_bytes_parse_like_text() -> None:
    assert read_bundle([line.encode() for line in HANG_LINES]) == read_bundle(HANG_LINES)


@pytest.mark.parametrize("number", [0, 1, len(HANG_LINES) // 2, -2])
def test_a_changed_line_is_refused(number: int) -> None:
    lines = list(HANG_LINES)
    lines[number] = lines[number].replace("0", "7", 1)
    with pytest.raises(RuleError, match="line"):
        read_bundle(lines)


@pytest.mark.parametrize("kept", [0, 1, 10, len(HANG_LINES) - 2, len(HANG_LINES) - 1])
def test_a_truncated_bundle_is_refused(kept: int) -> None:
    with pytest.raises(RuleError):
        read_bundle(HANG_LINES[:kept])


@pytest.mark.parametrize(
    "line",
    ["", "{", "[" * 100_000, '{"bundle":2}', "null", "[]", '{"bundle":1}', "\x00", "x" * 2_000_000],
)
def test_other_text_is_refused(line: str) -> None:
    with pytest.raises(RuleError):
        read_bundle([line])


def test_an_impossible_job_is_refused() -> None:
    head = json.loads(HANG_LINES[0])
    head["job"]["rank_node"] = [0, 99]
    resummed = list(write_bundle(replace(HANG.job, rank_node=(0, 1, 2, 3)), ONLY, (), version="0"))
    resummed[0] = json.dumps(head, sort_keys=True, separators=(",", ":")) + "\n"
    with pytest.raises(RuleError):
        read_bundle(resummed)


def summed(*lines: str) -> list[str]:
    """The lines with a correct checksum."""
    return [*lines, json.dumps({"sha256": hashlib.sha256("".join(lines).encode()).hexdigest()}) + "\n"]


def head_with(**changes: object) -> str:
    """The head of a bundle with a change inside: `job__nodes=3`."""
    head = json.loads(HANG_LINES[0])
    for path, value in changes.items():
        *parts, last = path.split("__")
        inner = head
        for part in parts:
            inner = inner[part]
        inner[last] = value
    return json.dumps(head) + "\n"


def test_a_right_checksum_alone_is_no_bundle() -> None:
    assert read_bundle(summed(head_with(), *HANG_LINES[1:-1])).holds
    with pytest.raises(RuleError, match="no diagnoses"):
        read_bundle(summed(head_with()))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dropped": -5}, "dropped"),
        ({"extra": 1}, "extra"),
        ({"told": [{"fault": "none"}]}, "fault"),
        ({"told": 1}, "list of diagnoses"),
        ({"job__nodes": 1 << 18}, "job.nodes"),
        ({"job__nodes": 0}, "job.nodes"),
        ({"job__rank_node": []}, "job.rank_node"),
        ({"job__more": 1}, "job"),
        ({"settings__judge_s": 1e-300}, "judge_s"),
        ({"settings__hangs__cut_s": 1e-300}, "cut_s"),
        ({"settings__crashes__sockets_only_s": 0.0}, "sockets_only_s"),
        ({"settings__slow": {**SlowSettings().model_dump(), "every_s": 1e-300}}, "slow.every_s"),
        ({"settings__hangs__more": 1}, "more"),
    ],
)
def test_an_invalid_head_is_refused_by_field_despite_a_right_checksum(changes: dict[str, object], said: str) -> None:
    with pytest.raises(RuleError, match=said):
        read_bundle(summed(head_with(**changes), *HANG_LINES[1:-1]))


@pytest.mark.parametrize("moment", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_an_evaluation_without_a_valid_time_is_refused(moment: str) -> None:
    with pytest.raises(RuleError, match="no valid time"):
        read_bundle(summed(HANG_LINES[0], f'["judge",{moment}]\n', *HANG_LINES[-2:-1]))


@pytest.mark.parametrize("behind", ["rubbish\n", "\n", HANG_LINES[1], HANG_LINES[-1]])
def test_no_line_may_follow_the_checksum(behind: str) -> None:
    with pytest.raises(RuleError, match="after the checksum"):
        read_bundle([*HANG_LINES, behind])


def test_a_checksum_line_with_other_keys_is_refused() -> None:
    last = json.dumps({**json.loads(HANG_LINES[-1]), "more": 1})
    with pytest.raises(RuleError, match="sum"):
        read_bundle([*HANG_LINES[:-1], last])


def test_a_bundle_has_the_live_diagnoses_and_shows_whether_the_rest_gives_them() -> None:
    what = list(calls(HANG.told(), judge_s=ONLY.judge_s))
    told = replay(HANG.job, HANG.told(), ONLY)
    assert told
    whole = read_bundle(write_bundle(HANG.job, ONLY, what, version="0", live=told))
    assert (whole.live, whole.holds, proves(whole.live, whole.diagnoses)) == (told, True, True)
    tape = CallLog(most=8)
    for act in what:
        tape.add(act)
    rest = read_bundle(write_bundle(HANG.job, ONLY, tape, version="0", dropped=tape.dropped, live=told))
    assert (rest.dropped, rest.live, rest.holds, proves(rest.live, rest.diagnoses)) == (
        len(what) - 8,
        told,
        True,
        False,
    )
    less = tuple(diagnosis.model_copy(update={"isolate": not diagnosis.isolate}) for diagnosis in told)
    assert not proves(less, told)


def test_a_call_log_keeps_the_newest_and_counts_the_dropped_calls() -> None:
    tape = CallLog(most=3)
    for number in range(5):
        tape.add(float(number))
    assert (list(tape), tape.dropped) == ([2.0, 3.0, 4.0], 2)
