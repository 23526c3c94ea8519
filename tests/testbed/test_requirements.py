"""Tests that a missing part skips its tests unless it is required, and that a misspelt requirement stops the run."""

import pytest

from tests.testbed.requirements import PARTS, VARIABLE, require_or_skip, required_parts


def test_required_parts_are_parsed_with_spaces_and_empty_items() -> None:
    assert required_parts("") == frozenset()
    assert required_parts(" ray, postgres,,") == {"ray", "postgres"}
    assert required_parts(",".join(PARTS)) == set(PARTS)


def test_an_unknown_part_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"names kubernets; known parts are kubernetes, ray, postgres, prometheus"):
        required_parts("ray,kubernets")


def test_a_missing_part_skips_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ray")
    with pytest.raises(pytest.skip.Exception, match="kubernetes: no Go here"):
        require_or_skip("kubernetes", "no Go here")


def test_a_required_part_fails_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ray,kubernetes")
    with pytest.raises(pytest.fail.Exception, match=f"kubernetes is required by {VARIABLE}, but no Go here"):
        require_or_skip("kubernetes", "no Go here")
