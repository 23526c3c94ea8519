"""dcgm-exporter's and xpu_timer's metrics, and the text format that they share."""

from pathlib import Path
from typing import Any

import pytest

from faults.observations import DeviceCounter, ExternalFinding
from faults.readers import ParseErrors
from faults.readers.dcgm import parse_dcgm
from faults.readers.job_map import JobMap
from faults.readers.prometheus import Sample, parse_samples
from faults.readers.xpu_timer import parse_xpu_timer
from tests.faults.readers import made

PLACES = JobMap(2, (0, 1))
LABELS = 'gpu="3",UUID="GPU-96be",pci_bus_id="00000000:08:00.0",device="nvidia3",modelName="H100",Hostname="b"'
XPU = sorted((made.PUBLIC / "third_party" / "dlrover_xpu_timer").glob("*.prom"))


def samples(text: str, tally: ParseErrors | None = None) -> list[Sample]:
    return list(parse_samples([text.encode()], prefixes=("a",), source="x", tally=tally or ParseErrors()))


def devices(text: str, *, tally: ParseErrors | None = None, job_map: JobMap = PLACES) -> list[Any]:
    return list(parse_dcgm([text.encode()], at_s=1.0, node=1, job_map=job_map, tally=tally or ParseErrors()))


def test_samples_with_and_without_labels_are_parsed() -> None:
    assert samples('a 1\n# HELP a b\nother 5\na{x="1",y="2",} 2.5e3 1700000000000\n a 3\n') == [
        Sample("a", {}, 1.0),
        Sample("a", {"x": "1", "y": "2"}, 2500.0),
    ]


def test_labels_may_hold_braces_quotes_and_line_ends() -> None:
    (found,) = samples(r'a{x="} 1 {",y="say \"no\"",z="one\ntwo\\"} 7' + "\n")

    assert found.labels == {"x": "} 1 {", "y": 'say "no"', "z": "one\ntwo\\"}


@pytest.mark.parametrize(
    ("line", "defect"),
    [
        ("a", "not a sample"),
        ("a{x=1} 1", "labels are malformed"),
        ('a{x="1} 1', "labels are malformed"),
        ('a{x="1"', "not a sample"),
        ("a one", "value is no number"),
        ("a{" + 'x="1",' * 65 + "} 1", None),
        ("a{" + ",".join(f'x{index}="1"' for index in range(65)) + "} 1", "labels are malformed"),
        ('a{x="' + "1" * 300 + '"} 1', "labels are malformed"),
        ("a" * 70_000, "line too long"),
    ],
)
def test_malformed_samples_are_counted(line: str, defect: str | None) -> None:
    tally = ParseErrors()

    assert [found.name for found in samples(line + "\na 1\n", tally)][-1] == "a"
    assert tally.counts() == ({} if defect is None else {f"x: {defect}": 1})


def test_the_last_xid_of_a_gpu_is_read_also_when_there_was_none() -> None:
    assert [
        observation.values
        for observation in devices(f'DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 79\nDCGM_FI_DEV_XID_ERRORS{{gpu="0"}} 0\n')
    ] == [
        DeviceCounter("3", "xid", 79, 1.0),
        DeviceCounter("0", "xid", 0, 0.0),
    ]


def test_xid_counts_take_their_number_from_a_label() -> None:
    line = f'DCGM_EXP_XID_ERRORS_COUNT{{{LABELS},window_size_in_ms="300000",xid="42"}} 2\n'

    assert [observation.values for observation in devices(line)] == [DeviceCounter("3", "xid", 42, 2.0)]


def test_error_counters_are_read_and_other_metrics_ignored() -> None:
    text = "\n".join(
        f"{name}{{{LABELS}}} {value}"
        for name, value in [
            ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1),
            ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1),
            ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 12),
            ("DCGM_FI_DEV_GPU_TEMP", 50),
        ]
    )

    assert [observation.values for observation in devices(text)] == [
        DeviceCounter("3", "ecc-double", 0, 1.0),
        DeviceCounter("3", "row-remap", 0, 1.0),
        DeviceCounter("3", "nvlink", 2, 12.0),
    ]


@pytest.mark.parametrize("blank", [2147483632, 2147483634, 140737488355328, 9223372036854775794])
def test_a_blank_value_of_dcgm_is_ignored(blank: int) -> None:
    tally = ParseErrors()

    assert devices(f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{LABELS}}} {blank}\n", tally=tally) == []
    assert tally.total == 0


@pytest.mark.parametrize(
    ("line", "defect"),
    [
        (f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 31.5", "value is no error number"),
        (f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 1e6", "value is no error number"),
        (f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} NaN", "value is no number in range"),
        (f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} +Inf", "value is no number in range"),
        (f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} -1", "value is no number in range"),
        ("DCGM_FI_DEV_XID_ERRORS 31", "no gpu label"),
        (f"DCGM_EXP_XID_ERRORS_COUNT{{{LABELS}}} 1", "xid label is no error number"),
    ],
)
def test_malformed_device_samples_are_counted(line: str, defect: str) -> None:
    tally = ParseErrors()

    assert devices(line, tally=tally) == []
    assert tally.counts() == {f"dcgm: {defect}": 1}


def test_the_host_label_gives_the_node_when_hosts_are_known() -> None:
    line = f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 0\n"
    tally = ParseErrors()

    assert [observation.node for observation in devices(line)] == [1]
    assert [observation.node for observation in devices(line, job_map=JobMap(2, (0, 1), hosts={"a": 1, "b": 0}))] == [0]
    assert devices(line, job_map=JobMap(2, (0, 1), hosts={"a": 1}), tally=tally) == []
    assert tally.counts() == {"dcgm: of a host outside the job": 1}


def test_xpu_timer_metrics_become_findings_of_their_ranks() -> None:
    text = """
XPU_TIMER_COMMON_HANG{ip="1.2.3.4",local_rank="0",rank="1"} 1
XPU_TIMER_COLL_KERNEL_BANDWIDTH{dtype="fp16",level="3",operation="AllReduce",rank="0",transport="InterNode"} 45.5
XPU_TIMER_COMMON_HANG{rank="x"} 1
XPU_TIMER_COMMON_HANG{rank="2"} 1
XPU_TIMER_COMMON_HANG{rank="0"} NaN
exposer_scrapes_total 6174
"""
    tally = ParseErrors()

    observations = list(parse_xpu_timer([text.encode()], at_s=1.0, job_map=PLACES, tally=tally))

    assert [(each.node, each.rank, each.values) for each in observations] == [
        (1, 1, ExternalFinding("xpu_timer", "hang", 1.0)),
        (0, 0, ExternalFinding("xpu_timer", "collective-gb-per-s AllReduce/fp16/InterNode/3", 45.5)),
    ]
    assert tally.counts() == {
        "xpu_timer: of a rank outside the job": 1,
        "xpu_timer: rank label is no rank": 1,
        "xpu_timer: value is no number in range": 1,
    }


@pytest.mark.skipif(not XPU, reason="the public fixtures are not present")
@pytest.mark.parametrize("path", XPU, ids=lambda path: path.stem)
def test_public_xpu_timer_fixtures_give_the_hung_ranks(path: Path) -> None:
    tally = ParseErrors()
    observations = list(parse_xpu_timer([path.read_bytes()], at_s=1.0, job_map=JobMap(1, (0,) * 8), tally=tally))

    hung = {each.rank for each in observations if each.values == ExternalFinding("xpu_timer", "hang", 1.0)}
    expected = {"hang_xpu_timer_metric_all": set(range(8)), "hang_xpu_timer_metric_some": {0, 2, 5}}
    assert tally.total == 0
    assert hung == expected.get(path.stem, set())
