"""Whose GPUs a worker's are: by what CUDA, ROCm, the container and the driver say; never a neighbour's by a guess."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetwright.engines.visible_gpus import Gpu, UnknownGpusError, own_gpus

NODE = [Gpu(f"GPU-{letter}{letter}", "H100") for letter in "abcd"]
MIXED = [Gpu("GPU-aa", "L4"), Gpu("GPU-bb", "H100")]


def own(
    environment: dict[str, str], *, listed: Sequence[Gpu] = NODE, local: Sequence[str] | None = None
) -> tuple[str, ...] | str:
    try:
        return own_gpus(listed, environment=environment, local=lambda: local)
    except UnknownGpusError as error:
        return str(error)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2"}, ("GPU-cc",)),
        ({"CUDA_VISIBLE_DEVICES": "3, 0"}, ("GPU-dd", "GPU-aa")),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, ("GPU-bb",)),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, ()),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, ("GPU-bb",)),
        ({"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"}, ("GPU-aa",)),
        # A container with two GPUs counts those.
        ({"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "GPU-dd,GPU-bb"}, ("GPU-dd",)),
        ({"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "2,3"}, ("GPU-cc",)),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, ("GPU-bb",)),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, ("GPU-dd",)),
        ({"ROCR_VISIBLE_DEVICES": "2,3"}, ("GPU-cc", "GPU-dd")),
        ({"FLEETWRIGHT_AGENT_GPUS": "GPU-dd", "CUDA_VISIBLE_DEVICES": "0"}, ("GPU-dd",)),
    ],
)
def test_they_are_those_that_the_environment_shows(environment: dict[str, str], found: tuple[str, ...]) -> None:
    assert own(environment) == found


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "neither CUDA_VISIBLE_DEVICES nor FLEETWRIGHT_AGENT_GPUS names"),
        ({"CUDA_VISIBLE_DEVICES": "4"}, "CUDA_VISIBLE_DEVICES: 4 of 4 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-"}, "CUDA_VISIBLE_DEVICES: GPU- fits 4 of 4 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-xx"}, "fits 0 of 4 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1"}, "MIG-1 is a slice"),
        ({"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "void"}, "set FLEETWRIGHT_AGENT_GPUS"),
    ],
)
def test_what_is_not_certain_is_an_error(environment: dict[str, str], said: str) -> None:
    assert said in own(environment)


def test_the_driver_in_the_container_has_the_last_word_on_what_is_there() -> None:
    shown = ["GPU-bb", "GPU-dd"]
    assert own({"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "void"}, local=shown) == ("GPU-dd",)
    assert "the agent does not list GPU-zz" in own({"CUDA_VISIBLE_DEVICES": "0"}, local=["GPU-zz"])


def test_numbers_among_unlike_gpus_need_the_drivers_order() -> None:
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in own({"CUDA_VISIBLE_DEVICES": "0"}, listed=MIXED)
    assert own({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, listed=MIXED) == ("GPU-aa",)
    assert own({"CUDA_VISIBLE_DEVICES": "GPU-bb"}, listed=MIXED) == ("GPU-bb",)


@given(shown=st.sets(st.integers(0, 3), min_size=1), text=st.text(alphabet="0123-,GPUabcd", max_size=12))
def test_no_gpu_outside_of_the_container_is_ever_anothers(shown: set[int], text: str) -> None:
    there = [NODE[at].uuid for at in sorted(shown)]
    found = own({"CUDA_VISIBLE_DEVICES": text}, local=there)
    assert isinstance(found, str) or set(found) <= set(there)
