"""Tables are recognised by their columns; violations name row and column, and reject the table."""

import pytest

from fleet.documents import RuleError
from fleet.gpus import builtin_gpus
from power.measured_models.tables import COLUMNS, Points, Row, TableKind, kind_of, read_table
from tests.power.measured_models.made_up import limit_rows, request_rows, serving_rows, window_rows

TABLES = {
    TableKind.SERVING: serving_rows(),
    TableKind.REQUESTS: request_rows(),
    TableKind.LIMITS: limit_rows(),
    TableKind.WINDOWS: window_rows(),
}
KINDS = pytest.mark.parametrize("kind", TableKind)


def read(rows: list[Row], *, name: str = "run_a40.csv", into: Points | None = None) -> Points:
    points = Points() if into is None else into
    read_table(rows, list(rows[0]) if rows else [], name=name, gpus=builtin_gpus(), into=points)
    return points


def violations(rows: list[Row], *, name: str = "run_a40.csv") -> list[str]:
    with pytest.raises(RuleError) as caught:
        read(rows, name=name)
    return [f"{path}: {message}" for path, message in caught.value.violations]


@KINDS
def test_a_table_is_recognised_by_its_columns(kind: TableKind) -> None:
    assert kind_of(list(TABLES[kind][0])) is kind


@KINDS
def test_a_missing_column_is_named(kind: TableKind) -> None:
    missing = COLUMNS[kind][-1]
    with pytest.raises(RuleError, match=f"{missing}: is a missing column of a table of the kind {kind}"):
        kind_of([name for name in COLUMNS[kind] if name != missing])


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(RuleError, match="no table that is known"):
        kind_of(["time", "watts"])


@KINDS
def test_one_row_is_too_few_for_a_curve(kind: TableKind) -> None:
    assert violations(TABLES[kind][:1]) == ["(): must have at least 3 rows to fit a curve, got 1"]


@pytest.mark.parametrize(
    ("kind", "column", "value", "allowed"),
    [
        (TableKind.SERVING, "avg_power_watts", "-5", "above 0 and at most 1e+09"),
        (TableKind.SERVING, "num_gpus", "0", "from 1 to 1e+09"),
        (TableKind.SERVING, "median_itl_ms", "nan", "above 0 and at most 1e+09"),
        (TableKind.REQUESTS, "peak_power", "-0.1", "from 0 to 3"),
        (TableKind.REQUESTS, "prompt_time", "inf", "above 0 and at most 1e+09"),
        (TableKind.REQUESTS, "average_power", "", "from 0 to 3"),
        (TableKind.LIMITS, "average_power", "-1", "above 0 and at most 1e+09"),
        (TableKind.LIMITS, "time_per_epoch", "fast", "above 0 and at most 1e+09"),
        (TableKind.WINDOWS, "gpu1_energy", "-3", "above 0 and at most 1e+09"),
        (TableKind.WINDOWS, "elapsed_time", "0", "above 0 and at most 1e+09"),
    ],
)
def test_an_invalid_value_is_named_with_its_line(kind: TableKind, column: str, value: str, allowed: str) -> None:
    rows = [dict(row) for row in TABLES[kind]]
    rows[2][column] = value
    assert violations(list(rows)) == [f"(4, '{column}'): must be a number {allowed}, got {value!r}"]


def test_an_invalid_table_adds_no_points() -> None:
    points = read(list(limit_rows()))
    before = len(points.limits)
    wrong = [{**row, "power_limit": "-1"} for row in limit_rows()]
    with pytest.raises(RuleError):
        read(list(wrong), into=points)
    assert len(points.limits) == before


def test_a_zeus_file_must_name_its_board() -> None:
    assert "must have the board's name in its file name" in violations(limit_rows(), name="sweep.csv")[0]
    assert "got A40, V100" in violations(limit_rows(), name="a40_and_v100.csv")[0]


@pytest.mark.parametrize("name", ["zeus_summary_power_v100.csv.gz", "V100_resnet50_gpu0_1.csv", "v100.csv"])
def test_the_board_is_read_from_the_file_name(name: str) -> None:
    assert {point.gpu for point in read(limit_rows(), name=name).limits} == {"V100"}


def test_windows_give_power_and_time() -> None:
    summary, windows = read(limit_rows()).limits[:7], read(window_rows()).limits
    assert [(one.limit_w, one.time_s) for one in summary] == [(one.limit_w, one.time_s) for one in windows]
    assert [one.power_w for one in windows] == pytest.approx([one.power_w for one in summary])


def test_a_window_without_a_limit_is_named() -> None:
    rows = [{**row, "window_name": "warm-up"} for row in window_rows()]
    assert violations(list(rows))[0] == "(2, 'window_name'): must end with the power limit in watts"


def test_rows_without_values_are_counted() -> None:
    idle = [{**row, "avg_batch_size": ""} for row in serving_rows()[:3]]
    other = [{**row, "gpu_model": "Abacus"} for row in serving_rows()[:2]]
    points = read([*idle, *other, *serving_rows()])
    assert len(points.serving) == len(serving_rows())
    assert points.left_out == {"writes no tokens": 3, "no GPU type of the catalogue is called 'Abacus'": 2}


def test_power_that_was_not_recorded_is_none() -> None:
    rows = [{**row, "peak_power": "0", "average_power": "0.0"} for row in request_rows()]
    assert all(point.peak_share is None and point.mean_share is None for point in read(list(rows)).requests)


def test_a_model_name_must_contain_its_size() -> None:
    assert "must contain its size" in violations(request_rows(model="bloom"))[0]
