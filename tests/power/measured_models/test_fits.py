"""Fits recover the truth of synthetic tables, and their errors are of held-out data."""

import datetime as dt
from math import exp
from pathlib import Path

import pytest

from fleet.documents import RuleError, parse_document, read_model, write_model
from fleet.gpus import builtin_gpus
from power.measured_models import PowerShares, builtin_curves, builtin_shares
from power.measured_models.fitting import fit_curves
from power.measured_models.points import prompt_times, token_times
from power.measured_models.tables import Points, Row, read_table
from tests.power.measured_models import made_up

DAY = dt.date(2026, 11, 21)
DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "power"
TABLES = ("mlenergy_leaderboard_v3_configs", "splitwise_sim_perf_model", "zeus_nsdi23_summary_power_a40")


def fitted(*tables: list[Row], names: tuple[str, ...] = ()) -> PowerShares:
    points = Points()
    for at, rows in enumerate(tables):
        name = names[at] if names else "run_a40.csv"
        read_table(rows, list(rows[0]), name=name, gpus=builtin_gpus(), into=points)
    return fit_curves(points, base=builtin_shares(), date=DAY)


class TestServing:
    def test_the_fit_recovers_the_formula(self) -> None:
        found = fitted(made_up.serving_rows()).serving[0]
        truth = (made_up.LEVEL, made_up.BATCH, made_up.SATURATION, made_up.ACTIVE, made_up.TOTAL, made_up.GPUS)
        assert (found.level, found.batch, found.saturation, found.active, found.total, found.gpus) == pytest.approx(
            truth, abs=1e-3
        )
        assert found.new_model_error.mean < 1e-3
        assert found.known_engine_error.mean < 1e-3
        assert found.constant_error.mean > 0.05

    def test_errors_are_of_held_out_data(self) -> None:
        noisy = fitted(made_up.serving_rows(noise=0.1)).serving[0]
        assert 0.05 < noisy.known_engine_error.mean < noisy.new_model_error.mean

    def test_an_engine_keeps_its_own_level(self) -> None:
        curves = fitted(made_up.serving_rows())
        engine = next(one for one in curves.engines if one.model == "acme/M-235B")
        for row in (row for row in made_up.serving_rows() if row["model_id"] == engine.model):
            share = float(row["avg_power_watts"]) / engine.gpus / made_up.TDP_W
            assert engine.share(float(row["avg_batch_size"])) == pytest.approx(share, rel=1e-3)
        assert (engine.token_s, engine.token_batch_growth) == pytest.approx((made_up.TOKEN_S, made_up.GROWTH), rel=1e-3)

    def test_size_predicts_the_power_of_another_model(self) -> None:
        found = fitted(made_up.serving_rows()).serving[0]
        rise = exp(found.level) * (70 / 4) ** (found.active + found.total) * 4**found.gpus
        row = next(row for row in made_up.serving_rows() if row["model_id"] == "acme/M-70B")  # a batch of 8
        share = float(row["avg_power_watts"]) / 4 / made_up.TDP_W
        assert made_up.IDLE + rise * 8**found.batch == pytest.approx(share, rel=1e-3)

    def test_two_engines_are_too_few_for_a_formula_of_models(self) -> None:
        curves = fitted(made_up.serving_rows()[:16])
        assert [one.name for one in curves.boards] == ["H100-SXM", "B200"]
        assert not any(one.families == 2 for one in curves.serving)

    def test_one_engine_is_too_few_for_a_fit(self) -> None:
        with pytest.raises(
            RuleError, match="H100-SXM: 1 engines were measured at 3 batches or more, expected at least 2"
        ):
            fitted(made_up.serving_rows()[:8])


class TestRequests:
    def test_phases_have_their_own_power(self) -> None:
        engine = fitted(made_up.request_rows()).engines[0]
        assert engine.prompt_share == pytest.approx(1.02)
        assert engine.share(1) == pytest.approx(0.6, abs=1e-3)
        assert engine.prompt_s == pytest.approx((0.04, 2e-4, 2e-8), rel=1e-3)
        assert (engine.token_s, engine.token_batch_growth) == pytest.approx((0.048, 0.01), rel=1e-3)
        assert engine.prompt_time_error is not None
        assert engine.prompt_time_error.mean < 1e-6

    def test_rows_without_power_still_give_times(self) -> None:
        rows: list[Row] = [{**row, "peak_power": "0", "average_power": "0"} for row in made_up.request_rows()]
        engine = fitted(rows).engines[0]
        assert (engine.rise_share, engine.prompt_share, engine.power_error) == (0.0, 0.0, None)
        assert engine.prompt_s is not None


class TestLimits:
    def test_the_fit_recovers_the_curve(self) -> None:
        curves = fitted(made_up.limit_rows())
        found = curves.sweeps[0]
        assert (found.name, found.full_limit_w, found.jobs) == ("A40", 300.0, 4)
        assert (found.floor_share, found.exponent) == pytest.approx((made_up.FLOOR, made_up.EXPONENT), abs=0.06)
        assert found.power_error.mean < 0.005
        assert found.time_error.mean < 0.01
        assert (curves.clock.floor_share, curves.clock.exponent) == (found.floor_share, found.exponent)

    def test_values_that_no_sweep_gives_stay_cited(self) -> None:
        assert fitted(made_up.limit_rows()).clock.memory_sensitivity == builtin_shares().clock.memory_sensitivity

    def test_a_board_is_also_predicted_from_others(self) -> None:
        rows = made_up.limit_rows()
        curves = fitted(rows, rows, names=("x_a40.csv", "x_v100.csv"))
        assert [one.name for one in curves.sweeps] == ["A40", "V100"]
        assert all(one.pooled_power_error.mean < 0.005 for one in curves.sweeps)

    def test_limits_that_never_bind_are_refused(self) -> None:
        rows: list[Row] = [{**row, "average_power": "90"} for row in made_up.limit_rows()]
        with pytest.raises(RuleError, match="no job draws over 85%"):
            fitted(rows)


class TestDocument:
    def test_fitted_curves_round_trip_through_a_document(self) -> None:
        curves = fitted(made_up.serving_rows(), made_up.request_rows(), made_up.limit_rows())
        assert read_model(parse_document(write_model(curves), name="curves"), PowerShares) == curves

    def test_a_fit_keeps_the_other_parts_of_its_base(self) -> None:
        once, base = fitted(made_up.limit_rows()), builtin_shares()
        assert once.serving == base.serving
        assert once.boards == base.boards
        assert once.server == base.server

    def test_a_new_measurement_of_an_engine_replaces_that_engine_alone(self) -> None:
        points, base = Points(), builtin_curves()
        rows = made_up.request_rows()
        read_table(rows, list(rows[0]), name="runs.csv", gpus=builtin_gpus(), into=points)
        curves = fit_curves(points, base=base, date=DAY)
        assert len(curves.engines) == len(base.engines)
        changed = [one for one in curves.engines if one not in base.engines]
        assert [(one.gpu, one.model) for one in changed] == [("A100-80GB-SXM", "bloom-176b")]

    def test_tables_without_a_usable_row_are_refused(self) -> None:
        rows: list[Row] = [{**row, "gpu_model": "Abacus"} for row in made_up.serving_rows()[:3]]
        with pytest.raises(RuleError, match=r"no row can be used \(3 rows: no GPU type of the catalogue"):
            fitted(rows)

    @pytest.mark.skipif(not DATA.exists(), reason="the measurements are not present")
    def test_the_shipped_curves_equal_the_fit_of_the_public_tables(self) -> None:
        import csv  # noqa: PLC0415 - used only with the measurements
        import gzip  # noqa: PLC0415

        points = Points()
        for name in (*TABLES, "zeus_nsdi23_summary_power_v100"):
            with gzip.open(DATA / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                rows = list(reader)
            read_table(rows, list(reader.fieldnames or ()), name=f"{name}.csv.gz", gpus=builtin_gpus(), into=points)
        found, shipped = fit_curves(points, base=builtin_shares(), date=DAY), builtin_curves()
        provenance = {"source", "date"}
        for part in ("boards", "serving", "sweeps", "engines"):
            ours, theirs = (
                [one.model_dump(exclude=provenance) for one in getattr(side, part)] for side in (found, shipped)
            )
            assert ours == theirs
        assert found.clock.model_dump(exclude=provenance) == shipped.clock.model_dump(exclude=provenance)


class TestTimes:
    def test_no_coefficient_is_negative(self) -> None:
        tokens = [100.0, 200.0, 400.0, 800.0, 1600.0]
        (fixed, each, square), _ = prompt_times(tokens, [1e-3 * each - 0.04 for each in tokens])  # an intercept below 0
        assert fixed == 0
        assert min(each, square) >= 0

    def test_times_that_do_not_grow_have_no_growth(self) -> None:
        alone, growth, error = token_times([1, 8, 64], [0.02, 0.02, 0.02])
        assert (alone, growth, error.mean) == (0.02, 0.0, 0.0)
