"""Metered power from CSV: every form that is read, even steps from uneven readings, and errors that name the line."""

import numpy as np
import pytest

from fleet.documents import RuleError
from fleet.errors import DocumentError
from power.forecast import Readings, read_power


def read(text: str) -> Readings:
    return read_power(text, name="row.csv")


class TestForms:
    @pytest.mark.parametrize(
        "text",
        [
            "time,watts\n0,100\n2,110\n",
            "at_s,row_w\n7,100\n9,110\n",
            "Time_S,Power_W,other\n2,110,x\n0,100,y\n",
            "timestamp,value\n2026-11-21T06:00:00Z,100\n2026-11-21T06:00:02Z,110\n",
            "\ufefftimestamp,value\n2026-11-21 06:00:00,100\n2026-11-21 06:00:02,110\n",
        ],
    )
    def test_each_form_is_read(self, text: str) -> None:
        found = read(text)
        assert found.at_s.tolist() == [0, 2]
        assert found.watts.tolist() == [100, 110]
        assert found.step_s == 2

    def test_dates_give_the_start(self) -> None:
        start = read("time,watts\n2026-11-21T06:00:10+01:00,1\n2026-11-21T06:00:00+01:00,2\n").start
        assert start is not None
        assert start.isoformat() == "2026-11-21T06:00:00+01:00"


class TestSteps:
    def test_steps_hold_means_or_peaks(self) -> None:
        readings = Readings(at_s=np.array([0.0, 200, 400, 700, 2000]), watts=np.array([1.0, 2, 6, 5, 9]))
        assert readings.steps(600).watts.tolist()[:2] == [3, 5]
        assert readings.steps(600, of="peak").watts.tolist()[:2] == [6, 5]
        assert np.isnan(readings.steps(600).watts[2])
        assert len(readings.steps(600).watts) == 4

    def test_steps_are_aligned_to_the_clock(self) -> None:
        steps = read("time,watts\n2026-11-21T06:07:00,1\n2026-11-21T06:11:00,3\n").steps(600)
        assert (steps.second_of_day, steps.weekday, steps.watts.tolist()) == (6 * 3600, 5, [1, 3])

    @pytest.mark.parametrize("step_s", [0.0, -5.0, 7.0, 86_400.0])
    def test_a_step_that_does_not_divide_a_day_is_refused(self, step_s: float) -> None:
        with pytest.raises(RuleError, match="step_s: must be a part of a day"):
            read("time,watts\n0,1\n2,1\n").steps(step_s)


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("watts\n1\n2\n", "line 1: has the columns 'watts', expected one named time or"),
            ("time,power\n1,2\n2,3\n", "expected one named watts or"),
            ("time,watts\n1,2\n", "has 1 readings, expected 2 to"),
            ("time,watts\n1,2\n2\n", "line 3: has 1 columns, expected at least 2"),
            ("time,watts\n1,2\n2,-3\n", "line 3: watts: expected a number from 0 to 1e+09, got '-3'"),
            ("time,watts\n1,2\n2,nan\n", "line 3: watts: expected a number"),
            ("time,watts\n1,2\nsoon,3\n", "line 2: time: expected seconds or a time in ISO 8601, got '1'"),
            ("time,watts\n1,2\n1,3\n", "line 3: time: is the time of another reading too"),
        ],
    )
    def test_each_error_names_line_and_column(self, text: str, message: str) -> None:
        with pytest.raises(DocumentError) as caught:
            read(text)
        assert message in str(caught.value)

    def test_times_that_do_not_rise_are_refused(self) -> None:
        with pytest.raises(RuleError, match="at_s: must rise"):
            Readings(at_s=np.array([0.0, 0.0]), watts=np.array([1.0, 1.0]))
