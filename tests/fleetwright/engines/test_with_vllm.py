"""The plug-in inside a real vLLM; skipped where vLLM is not installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetwright.engines.placement_file import PlacementFile, settled
from fleetwright.engines.vllm_plugin import VARIABLE, placed_policy, register
from tests.fleetwright.engines.test_vllm_plugin import put

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

LAYERS, EXPERTS, SLOTS, GPUS = 6, 32, 48, 8


def maps(seed: int) -> Any:
    """Maps with every expert in a slot and no expert twice on a GPU."""
    rng = np.random.default_rng(seed)
    dealt = [rng.permutation(EXPERTS).reshape(GPUS, -1) for _ in range(LAYERS)]
    others = [[rng.permutation(np.setdiff1d(np.arange(EXPERTS), own))[:2] for own in row] for row in dealt]
    return np.concatenate([np.array(dealt), np.array(others)], axis=2).reshape(LAYERS, SLOTS)


def test_registering_wraps_the_default_policy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vllm.distributed.eplb.policy import (  # type: ignore[import-not-found]  # noqa: PLC0415
        EPLB_POLICIES,
        DefaultEplbPolicy,
    )

    monkeypatch.setitem(EPLB_POLICIES, "default", DefaultEplbPolicy)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "placement.json"))
    register()
    register()
    assert EPLB_POLICIES["default"].__mro__[1] is DefaultEplbPolicy


def test_settling_keeps_as_many_slots_as_vllm() -> None:
    from vllm.distributed.eplb.policy import DefaultEplbPolicy  # noqa: PLC0415

    for seed in range(20):
        wanted, current = maps(seed), maps(seed + 100)
        theirs = DefaultEplbPolicy.preserve_intragpu_slots(wanted, GPUS, current)
        ours = settled(wanted, current, gpus=GPUS)
        assert (ours == current).sum() == (theirs == current).sum()


def test_the_policy_returns_the_tensor_that_vllm_expects(tmp_path: Path) -> None:
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415
    from vllm.distributed.eplb.policy import DefaultEplbPolicy  # noqa: PLC0415

    path = tmp_path / "placement.json"
    policy = placed_policy(DefaultEplbPolicy, PlacementFile(path), agree=lambda mine: (mine, mine))
    weight = torch.ones(LAYERS, EXPERTS)
    current = torch.arange(SLOTS).remainder(EXPERTS).repeat(LAYERS, 1)
    own = policy.rebalance_experts(weight, SLOTS, 8, 1, GPUS, current)
    assert torch.equal(own, DefaultEplbPolicy.rebalance_experts(weight, SLOTS, 8, 1, GPUS, current))
    put(path, maps(1))
    found = policy.rebalance_experts(weight, SLOTS, 8, 1, GPUS, current)
    assert (found.dtype, found.device.type, tuple(found.shape)) == (torch.int64, "cpu", (LAYERS, SLOTS))
    assert (np.sort(found.numpy().reshape(-1, SLOTS // GPUS)) == np.sort(maps(1).reshape(-1, SLOTS // GPUS))).all()
