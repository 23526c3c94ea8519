"""The shipped coefficients."""

import datetime as dt

import pytest

from fleet.documents import parse_document, read_model, write_model
from planner.performance.coefficients import (
    LOCAL_TERMS,
    PORTABLE_TERMS,
    Coefficients,
    Correction,
    builtin_coefficients,
    collapsed,
    correction_of,
)


def test_the_coefficients_report_their_basis() -> None:
    shipped = builtin_coefficients()
    assert shipped.fitted is not None
    assert shipped.fitted >= dt.date(2026, 11, 21)
    assert "aiconfigurator" in shipped.source
    assert shipped.points + sum(shipped.rejected.values()) == 5221


def test_the_validation_errors_are_within_the_documented_limits() -> None:
    """Held-out third: TPOT 12 %, TTFT 30 %.  Held-out GPU type: TPOT 18 %.  Coverage of intervals: 90 %."""
    errors = {error.split: error for error in builtin_coefficients().errors}
    for split in ("random", "curves"):
        assert errors[split].tpot_mape <= 0.12
        assert errors[split].ttft_mape <= 0.30
        assert 0.85 <= errors[split].tpot_coverage <= 0.95
        assert 0.85 <= errors[split].ttft_coverage <= 0.95
    left_out = [error for split, error in errors.items() if split.startswith("without")]
    assert len(left_out) == 6
    assert all(error.tpot_mape <= 0.18 for error in left_out)


def test_every_reached_share_is_between_0_and_1() -> None:
    reached = builtin_coefficients().reached
    shares = (reached.weights, reached.experts, reached.cache, reached.compute, reached.expert_compute, reached.link)
    assert all(0 < share < 1 for share in shares)


def test_the_terms_are_known_and_fewer_than_200() -> None:
    shipped = builtin_coefficients()
    assert set(shipped.portable.tpot) <= set(PORTABLE_TERMS)
    named = [term for term in shipped.local.tpot if not term.startswith(("gpu:", "model:"))]
    assert set(named) <= set(LOCAL_TERMS)
    assert len(shipped.local.tpot) + len(shipped.portable.tpot) < 200


def test_intervals_are_wider_for_unmeasured_types_and_models() -> None:
    shipped = builtin_coefficients()
    for moe in (False, True):
        measured = shipped.interval(gpu="B200", model="DeepSeek-V3", moe=moe)
        for gpu, model in (("L4", "DeepSeek-V3"), ("B200", "Phi-4")):
            unmeasured = shipped.interval(gpu=gpu, model=model, moe=moe)
            assert measured is not None
            assert unmeasured is not None
            assert unmeasured.tpot.high / unmeasured.tpot.low > measured.tpot.high / measured.tpot.low


def test_written_coefficients_read_back_unchanged() -> None:
    shipped = builtin_coefficients()
    assert read_model(parse_document(write_model(shipped), name="again"), Coefficients) == shipped


def test_without_a_fit_there_is_no_correction_and_no_interval() -> None:
    assert Coefficients().correction("H100-SXM") == Correction()
    assert Coefficients().interval(gpu="H100-SXM", model="Llama-3.1-8B", moe=False) is None


def test_collapsing_the_fixed_features_keeps_the_correction() -> None:
    fixed = {"one": 1.0, "sglang": 1.0, "gpus": 0.5}
    load = {"batch": 0.3, "input": -0.2, "output": 0.1, "apart": 0.0}
    terms = {"one": 0.1, "sglang*batch": 0.2, "gpus*gpus": 0.4, "trtllm": 9.0, "batch*input": 0.5, "gpus*input": 0.3}
    whole = correction_of(terms, {**fixed, **load})
    left = collapsed(terms, fixed)
    assert set(left) <= {"one", "batch", "input", "batch*input"}
    assert correction_of(left, {"one": 1.0, **load}) == pytest.approx(whole)
