"""The vLLM plug-in: off by default, one map for all workers or none, vLLM's own policy for an unfit file.

Modules with only what the plug-in uses stand in for vLLM and PyTorch.  docs/reference/engine-files.md names the real
versions that it ran with.
"""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fleetwright.engines.placement_file import PlacementFile, fingerprint, publish
from fleetwright.engines.vllm_plugin import VARIABLE, placed_policy, register

LAYERS, EXPERTS, SLOTS, GPUS = 2, 3, 4, 2
FIRST = np.array([[0, 1, 2, 0], [2, 1, 1, 0]])
SECOND = np.array([[2, 0, 1, 2], [0, 2, 1, 0]])
START = np.array([[0, 1, 2, 0], [0, 1, 2, 0]])
OWN = np.array([[1, 0, 2, 1], [1, 0, 2, 1]])
WEIGHT = np.ones((LAYERS, EXPERTS))


class OwnPolicy:
    """vLLM's policy, as far as the plug-in uses it."""

    @classmethod
    def rebalance_experts(cls, *_: Any) -> Any:
        return OWN


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """vLLM's registry of policies."""
    policies: dict[str, Any] = {"default": OwnPolicy}
    torch = ModuleType("torch")
    torch.from_numpy = lambda array: array  # type: ignore[attr-defined]
    policy = ModuleType("vllm.distributed.eplb.policy")
    policy.EPLB_POLICIES = policies  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("vllm", "vllm.distributed", "vllm.distributed.eplb"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.distributed.eplb.policy", policy)
    return policies


def put(path: Path, rows: Any, **more: Any) -> None:
    publish(json.dumps({"physical_to_logical_map": np.asarray(rows).tolist(), **more}), path)


def alone(mine: int) -> tuple[int, int]:
    return mine, mine


def balanced(policy: Any, current: Any = START, *, weight: Any = WEIGHT) -> Any:
    return policy.rebalance_experts(weight, SLOTS, 1, 1, GPUS, current).tolist()


class TestRegister:
    def test_without_a_file_the_policy_is_not_wrapped(
        self, engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(VARIABLE, raising=False)
        register()
        monkeypatch.setenv(VARIABLE, "")
        register()
        assert engine == {"default": OwnPolicy}

    def test_repeated_registration_wraps_the_policy_once(
        self, engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv(VARIABLE, str(tmp_path / "placement.json"))
        register()
        wrapped = engine["default"]
        assert issubclass(wrapped, OwnPolicy)
        register()
        assert engine == {"default": wrapped}

    def test_a_vllm_without_eplb_policies_logs_a_warning_and_keeps_serving(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, engine: dict[str, Any]
    ) -> None:
        monkeypatch.setenv(VARIABLE, "placement.json")
        engine.clear()
        register()
        monkeypatch.setitem(sys.modules, "vllm.distributed.eplb.policy", None)
        register()
        assert [record.message.startswith(f"{VARIABLE} is not used") for record in caplog.records] == [True, True]


class TestOneWorker:
    def test_experts_follow_the_file_and_keep_their_slots_where_possible(self, tmp_path: Path) -> None:
        path = tmp_path / "placement.json"
        put(path, SECOND)
        policy = placed_policy(OwnPolicy, PlacementFile(path), agree=alone)
        assert balanced(policy) == [[0, 2, 2, 1], [0, 2, 1, 0]]  # SECOND, with expert 0 in its old slot
        assert balanced(policy, None) == SECOND.tolist()
        loaded = np.array(balanced(policy))
        assert balanced(policy, loaded) == loaded.tolist()

    def test_a_new_file_applies_from_the_next_call(self, tmp_path: Path) -> None:
        path = tmp_path / "placement.json"
        policy = placed_policy(OwnPolicy, PlacementFile(path), agree=alone)
        assert balanced(policy, None) == OWN.tolist()
        put(path, FIRST)
        assert balanced(policy, None) == FIRST.tolist()
        put(path, SECOND)
        assert balanced(policy, None) == SECOND.tolist()

    @pytest.mark.parametrize(
        ("rows", "more", "reason"),
        [
            (FIRST[:1], {}, "2 MoE layers x 4 slots"),
            (FIRST, {"gpus": 4}, "gpus must be 2"),
            (FIRST, {"experts": 8}, "experts must be 3"),
            ([[0, 1, 1, 0]] * 2, {}, "must hold every expert"),
        ],
    )
    def test_an_unfit_file_is_logged_once_and_ignored(
        self, rows: Any, more: dict[str, Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "placement.json"
        put(path, rows, **more)
        policy = placed_policy(OwnPolicy, PlacementFile(path), agree=alone)
        with caplog.at_level(logging.WARNING, logger="vllm.fleetwright"):
            assert [balanced(policy), balanced(policy)] == [OWN.tolist()] * 2
        assert [record.message for record in caplog.records if reason in record.message] == [
            record.message for record in caplog.records
        ]
        assert len(caplog.records) == 1

    def test_a_draft_model_keeps_vllms_policy_and_the_main_model_uses_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "placement.json"
        put(path, FIRST)
        policy = placed_policy(OwnPolicy, PlacementFile(path), agree=alone)
        assert balanced(policy, START[:1], weight=np.ones((1, EXPERTS))) == OWN.tolist()
        assert balanced(policy) == FIRST.tolist()

    def test_malformed_files_never_break_serving(self, tmp_path: Path) -> None:
        path = tmp_path / "placement.json"
        policy = placed_policy(OwnPolicy, PlacementFile(path), agree=alone)
        for text in ("", "{", "[]", "null", "[" * 100_000, '{"physical_to_logical_map": {"a": 1}}'):
            publish(text, path)
            assert balanced(policy) == OWN.tolist()


class TestSeveralWorkers:
    """Workers with one file each, as on nodes where a new file arrives at different times."""

    @staticmethod
    def together(paths: list[Path], current: Any = START) -> list[Any]:
        """The results of all workers, which call in the same step."""
        barrier = threading.Barrier(len(paths))
        offered = [0] * len(paths)

        def agreement(worker: int) -> Callable[[int], tuple[int, int]]:
            def agree(mine: int) -> tuple[int, int]:
                offered[worker] = mine
                barrier.wait(10)
                return min(offered), max(offered)

            return agree

        returned: list[Any] = [None] * len(paths)

        def work(worker: int) -> None:
            policy = placed_policy(OwnPolicy, PlacementFile(paths[worker]), agree=agreement(worker))
            returned[worker] = balanced(policy, current)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(len(paths))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return returned

    def test_workers_with_the_same_file_apply_it(self, tmp_path: Path) -> None:
        paths = [tmp_path / name for name in "abc"]
        for path in paths:
            put(path, FIRST)
        assert self.together(paths) == [FIRST.tolist()] * 3

    def test_workers_with_different_files_keep_the_current_map(self, tmp_path: Path) -> None:
        paths = [tmp_path / name for name in "abc"]
        for path, rows in zip(paths, (FIRST, SECOND, FIRST), strict=True):
            put(path, rows)
        assert self.together(paths) == [START.tolist()] * 3

    @pytest.mark.parametrize("missing", [0, 1, 2])
    def test_one_worker_without_a_file_keeps_all_workers_on_the_current_map(self, missing: int, tmp_path: Path) -> None:
        paths = [tmp_path / name for name in "abc"]
        for worker, path in enumerate(paths):
            if worker != missing:
                put(path, FIRST)
        assert self.together(paths) == [START.tolist()] * 3

    @pytest.mark.parametrize("current", [None, np.array([[0, 1, 2], [0, 1, 2]]), np.where(START == 2, -1, START)])
    def test_disagreement_without_a_usable_current_map_uses_vllms_policy(self, current: Any, tmp_path: Path) -> None:
        paths = [tmp_path / name for name in "ab"]
        put(paths[0], FIRST)
        assert self.together(paths, current) == [OWN.tolist()] * 2

    def test_workers_without_files_use_vllms_policy(self, tmp_path: Path) -> None:
        assert self.together([tmp_path / name for name in "abc"]) == [OWN.tolist()] * 3


def test_workers_agree_by_one_all_reduce_over_the_eplb_group(
    monkeypatch: pytest.MonkeyPatch, engine: dict[str, Any], tmp_path: Path
) -> None:
    other = fingerprint(SECOND)
    calls: list[tuple[Any, Any]] = []

    def all_reduce(values: Any, *, op: Any, group: Any) -> None:
        calls.append((op, group))
        np.minimum(values, np.array([other, -other]), out=values)

    torch = sys.modules["torch"]
    torch.tensor = lambda values, dtype: np.array(values, dtype=dtype)  # type: ignore[attr-defined]
    torch.int64 = np.int64  # type: ignore[attr-defined]
    torch.distributed = SimpleNamespace(all_reduce=all_reduce, ReduceOp=SimpleNamespace(MIN="min"))  # type: ignore[attr-defined]
    state = ModuleType("vllm.distributed.parallel_state")
    state.get_eplb_group = lambda: SimpleNamespace(cpu_group="eplb")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.distributed.parallel_state", state)
    path = tmp_path / "placement.json"
    monkeypatch.setenv(VARIABLE, str(path))
    register()
    put(path, FIRST)
    assert balanced(engine["default"]) == START.tolist()
    put(path, SECOND)
    assert balanced(engine["default"], None) == SECOND.tolist()
    assert calls == [("min", "eplb")] * 2


def test_the_plug_in_is_registered_as_an_entry_point_of_vllm() -> None:
    (found,) = (one for one in entry_points(group="vllm.general_plugins") if one.name == "fleetwright")
    assert found.load() is register


def test_loading_the_plug_in_loads_no_controller_dependencies() -> None:
    script = (
        "import fleetwright.engines.vllm_plugin, sys; sys.exit(bool({'httpx', 'pydantic', 'ray'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
