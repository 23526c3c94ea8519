"""Bundles replay to equal diagnoses bit for bit, reject every change, and keep no more than the limit."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.bundle import CallLog, proves, read_bundle, write_bundle
from faults.large_jobs.settings import LargeJobSettings
from faults.localisation.settings import LocaliserSettings
from faults.monitor import FaultMonitor, MonitorSettings
from faults.observations import Observation
from faults.replay import Call, calls, replay
from faults.slow.settings import SlowSettings
from fleet.documents import RuleError
from tests.faults.stories import Story

ONLY = MonitorSettings(slow=None)
HANG = Story(behind=2, end_s=8.0)
ALL_RENAMED = MonitorSettings(
    slow=SlowSettings(min_slowdown=1.2, min_harm=1.3, min_implied_harm=1.4, max_nodes=64),
    jobwide=LargeJobSettings(
        max_pairs=1000, min_probes=5, localiser=LocaliserSettings(min_slowdown=1.5, min_confidence=0.75)
    ),
)


def lines_of(story: Story = HANG, settings: MonitorSettings = ONLY) -> list[str]:
    recorded_calls = calls(story.observations(), period_s=settings.judge_s)
    return list(write_bundle(story.job, settings, recorded_calls, version="1.2.3"))


HANG_LINES = lines_of()


@given(
    st.lists(
        st.tuples(st.integers(0, len(HANG.observations()) - 1), st.floats(-1e3, 1e3, allow_nan=False), st.booleans()),
        max_size=60,
    )
)
def test_any_observations_in_any_order_replay_to_the_same_diagnoses(calls: list[tuple[int, float, bool]]) -> None:
    observations = HANG.observations()
    recorded: list[Call] = [
        at_s if evaluate else observations[index]._replace(at_s=at_s) for index, at_s, evaluate in calls
    ]
    monitor = FaultMonitor(HANG.job, ONLY)
    for call in recorded:
        if isinstance(call, Observation):
            monitor.observe(call)
        else:
            monitor.evaluate(call)
    bundle = read_bundle(write_bundle(HANG.job, ONLY, recorded, version="0"))
    assert bundle.calls == tuple(recorded)
    assert bundle.diagnoses == monitor.diagnoses()
    assert bundle.holds


def test_a_hang_replays_bit_for_bit() -> None:
    bundle = read_bundle(HANG_LINES)
    assert bundle.diagnoses == replay(HANG.job, HANG.observations(), ONLY)
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
    ["", "{", "[" * 100_000, '{"bundle":2}', "null", "[]", '{"bundle":1}', '{"bundle":3}', "\x00", "x" * 2_000_000],
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


def test_a_bundle_with_a_correct_checksum_but_no_diagnoses_is_refused() -> None:
    assert read_bundle(summed(head_with(), *HANG_LINES[1:-1])).holds
    with pytest.raises(RuleError, match="no diagnoses"):
        read_bundle(summed(head_with()))


@pytest.mark.parametrize(
    ("changes", "message"),
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
def test_an_invalid_head_is_refused_by_field_despite_a_correct_checksum(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(RuleError, match=message):
        read_bundle(summed(head_with(**changes), *HANG_LINES[1:-1]))


@pytest.mark.parametrize("at_s", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_an_evaluation_without_a_valid_time_is_refused(at_s: str) -> None:
    with pytest.raises(RuleError, match="no valid time"):
        read_bundle(summed(HANG_LINES[0], f'["judge",{at_s}]\n', *HANG_LINES[-2:-1]))


@pytest.mark.parametrize("trailing_line", ["rubbish\n", "\n", HANG_LINES[1], HANG_LINES[-1]])
def test_no_line_may_follow_the_checksum(trailing_line: str) -> None:
    with pytest.raises(RuleError, match="after the checksum"):
        read_bundle([*HANG_LINES, trailing_line])


def test_a_checksum_line_with_other_keys_is_refused() -> None:
    last = json.dumps({**json.loads(HANG_LINES[-1]), "more": 1})
    with pytest.raises(RuleError, match="sum"):
        read_bundle([*HANG_LINES[:-1], last])


def test_a_bundle_holds_live_diagnoses_and_shows_whether_its_calls_reproduce_them() -> None:
    recorded = list(calls(HANG.observations(), period_s=ONLY.judge_s))
    live_diagnoses = replay(HANG.job, HANG.observations(), ONLY)
    assert live_diagnoses
    whole = read_bundle(write_bundle(HANG.job, ONLY, recorded, version="0", live=live_diagnoses))
    assert (whole.live, whole.holds, proves(whole.live, whole.diagnoses)) == (live_diagnoses, True, True)
    tape = CallLog(max_calls=8)
    for call in recorded:
        tape.add(call)
    rest = read_bundle(write_bundle(HANG.job, ONLY, tape, version="0", dropped=tape.dropped, live=live_diagnoses))
    assert (rest.dropped, rest.live, rest.holds, proves(rest.live, rest.diagnoses)) == (
        len(recorded) - 8,
        live_diagnoses,
        True,
        False,
    )
    less = tuple(diagnosis.model_copy(update={"isolate": not diagnosis.isolate}) for diagnosis in live_diagnoses)
    assert not proves(less, live_diagnoses)


def test_a_call_log_keeps_the_newest_and_counts_the_dropped_calls() -> None:
    tape = CallLog(max_calls=3)
    for number in range(5):
        tape.add(float(number))
    assert (list(tape), tape.dropped) == ([2.0, 3.0, 4.0], 2)


def format_1(settings: MonitorSettings) -> list[str]:
    """A bundle with the names of version 0.1.0."""
    lines = lines_of(settings=settings)
    head = json.loads(lines[0])
    slow, large = head["settings"]["slow"], head["settings"]["jobwide"]
    for part, old, new in (
        (slow, "least_slowdown", "min_slowdown"),
        (slow, "least_harm", "min_harm"),
        (slow, "least_implied_harm", "min_implied_harm"),
        (slow, "most_nodes", "max_nodes"),
        (large, "most_pairs", "max_pairs"),
        (large, "least_probes", "min_probes"),
        (large["localiser"], "least_slowdown", "min_slowdown"),
        (large["localiser"], "least_confidence", "min_confidence"),
    ):
        if part is not None:
            part[old] = part.pop(new)
    return summed(json.dumps({**head, "bundle": 1}) + "\n", *lines[1:-1])


@pytest.mark.parametrize("settings", [ALL_RENAMED, MonitorSettings(), ONLY])
def test_a_bundle_of_format_1_keeps_its_settings_and_diagnoses(settings: MonitorSettings) -> None:
    bundle = read_bundle(format_1(settings))
    assert bundle.settings == settings
    assert bundle.holds
    assert bundle == read_bundle(lines_of(settings=settings))


def test_a_bundle_that_version_0_1_0_wrote_replays() -> None:
    with Path(__file__).with_name("bundle_0_1_0.jsonl").open() as lines:
        bundle = read_bundle(lines)
    assert (bundle.version, bundle.settings, len(bundle.calls)) == ("0.1.0", MonitorSettings(), 100)
    (found,) = bundle.diagnoses
    assert (found.fault, found.node, found.onset_s, found.detected_s) == ("noncomm-hang", 1, 1.0, 3.25)
    assert bundle.holds


def test_format_2_refuses_the_names_of_format_1() -> None:
    lines = format_1(ALL_RENAMED)
    head = json.dumps({**json.loads(lines[0]), "bundle": 2}) + "\n"
    with pytest.raises(RuleError, match="least_slowdown"):
        read_bundle(summed(head, *lines[1:-1]))


@pytest.mark.parametrize(
    "settings", [None, [], {"jobwide": []}, {"jobwide": {"localiser": 1}}, {"slow": {"max_nodes": []}}]
)
def test_invalid_settings_of_format_1_are_refused(settings: object) -> None:
    head = json.loads(format_1(ONLY)[0])
    with pytest.raises(RuleError, match="settings"):
        read_bundle(summed(json.dumps({**head, "settings": settings}) + "\n", *HANG_LINES[1:-1]))
