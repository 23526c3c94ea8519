"""The plug-in's file: validation against the engine, stable slots for experts that stay, and atomic replacement."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetwright.engines.placement_file import Ints, MapShape, PlacementFile, fingerprint, parse, publish, settled

SHAPE = MapShape(layers=2, experts=3, slots=4, gpus=2)
MAP = [[0, 1, 2, 0], [2, 1, 1, 0]]


def document(**changes: Any) -> bytes:
    return json.dumps({"physical_to_logical_map": MAP, "experts": 3, "gpus": 2, **changes}).encode()


def test_a_valid_map_is_accepted_with_extra_fields() -> None:
    found = parse(document(schema="1", bound={"mean": 1.0}), shape=SHAPE)
    assert found.dtype == np.int64
    assert found.tolist() == MAP


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[]", "must be a JSON object with physical_to_logical_map"),
        (b"{}", "must be a JSON object with physical_to_logical_map"),
        (b"{", "Expecting property name"),
        (b"\xff", "codec can't decode"),
        (document(experts=4), "experts must be 3 as the engine has, got 4"),
        (document(gpus=4), "gpus must be 2 as the engine has, got 4"),
        (document(physical_to_logical_map=MAP[:1]), r"2 MoE layers x 4 slots, got \(1, 4\)"),
        (document(physical_to_logical_map=[[0, 1, 2], [0, 1, 2]]), r"2 MoE layers x 4 slots, got \(2, 3\)"),
        (document(physical_to_logical_map=[[0, 1, 2, 0], [0]]), "map must hold rows of one length"),
        (document(physical_to_logical_map=[[0, 1, 2, 0.5], MAP[1]]), "must be whole numbers, .* got float64"),
        (document(physical_to_logical_map=[[0, 1, 2, 3], MAP[1]]), "must name experts from 0 to 2"),
        (document(physical_to_logical_map=[[0, 1, 2, -1], MAP[1]]), "must name experts from 0 to 2"),
        (document(physical_to_logical_map=[MAP[0], [0, 1, 1, 0]]), r"map\[1\] must hold every expert, 2 is in no slot"),
    ],
)
def test_an_invalid_map_is_refused_with_the_reason(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text, shape=SHAPE)


def test_fingerprints_are_distinct_positive_and_independent_of_memory_order() -> None:
    rng = np.random.default_rng(5)
    maps = [rng.integers(0, 8, (3, 16)) for _ in range(500)]
    prints = [fingerprint(found) for found in maps]
    assert len(set(prints)) == len(maps)
    assert all(0 < found < 2**62 for found in prints)  # the negative also fits the engine's int64
    assert fingerprint(maps[0].copy(order="F")) == prints[0]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Ints, Ints, int]:
    """Two maps of one shape, possibly with several copies of an expert on one GPU, as in engines' own maps."""
    gpus, per_gpu, layers = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    numbers = st.lists(st.integers(0, 6), min_size=layers * gpus * per_gpu, max_size=layers * gpus * per_gpu)
    shape = (layers, gpus * per_gpu)
    return np.array(draw(numbers)).reshape(shape), np.array(draw(numbers)).reshape(shape), gpus


@given(pairs())
def test_settling_keeps_each_gpus_experts_and_changes_the_fewest_slots(pair: tuple[Ints, Ints, int]) -> None:
    wanted, current, gpus = pair
    found = settled(wanted, current, gpus=gpus)
    for layer in range(len(wanted)):
        for own, before, after in zip(
            np.split(wanted[layer], gpus), np.split(current[layer], gpus), np.split(found[layer], gpus), strict=True
        ):
            assert sorted(after) == sorted(own)
            common = sum(min(list(own).count(expert), list(before).count(expert)) for expert in set(own))
            assert int((after == before).sum()) == common  # no order of the slots keeps more


def test_a_current_map_of_another_shape_is_ignored() -> None:
    wanted = np.array([[0, 1, 2, 0]])
    assert settled(wanted, np.array([[0, 1, 2]]), gpus=2) is wanted


class TestPlacementFile:
    def test_a_replaced_file_is_read_again(self, tmp_path: Path) -> None:
        path = tmp_path / "placement.json"
        source = PlacementFile(path)
        with pytest.raises(FileNotFoundError):
            source.read(SHAPE)
        publish(document().decode(), path)
        assert source.read(SHAPE).tolist() == MAP
        publish(document(physical_to_logical_map=MAP[::-1]).decode(), path)
        assert source.read(SHAPE).tolist() == MAP[::-1]
        path.unlink()
        with pytest.raises(FileNotFoundError):
            source.read(SHAPE)

    def test_an_unchanged_file_is_not_read_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "placement.json"
        publish(document().decode(), path)
        source = PlacementFile(path)
        source.read(SHAPE)
        monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read again"))
        assert source.read(SHAPE).tolist() == MAP

    def test_a_file_too_large_is_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "placement.json"
        path.touch()
        os.truncate(path, (1 << 26) + 1)
        with pytest.raises(ValueError, match="must be at most 67,108,864 bytes"):
            PlacementFile(path).read(SHAPE)

    def test_a_failed_replacement_leaves_only_the_old_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "placement.json"
        publish("old", path)

        def fail(_: int) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            publish("new", path)
        assert [entry.name for entry in tmp_path.iterdir()] == ["placement.json"]
        assert path.read_text() == "old"
