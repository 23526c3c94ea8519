"""The GPUs of a worker according to CUDA, ROCm, the container and the driver; an ambiguous case is an error."""

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
        # Indices count the GPUs of the container.
        ({"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "GPU-dd,GPU-bb"}, ("GPU-dd",)),
        ({"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "2,3"}, ("GPU-cc",)),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, ("GPU-bb",)),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, ("GPU-dd",)),
        ({"ROCR_VISIBLE_DEVICES": "2,3"}, ("GPU-cc", "GPU-dd")),
        ({"FLEETWRIGHT_AGENT_GPUS": "GPU-dd", "CUDA_VISIBLE_DEVICES": "0"}, ("GPU-dd",)),
    ],
)
def test_own_gpus_follow_the_environment_variables(environment: dict[str, str], found: tuple[str, ...]) -> None:
    assert own(environment) == found


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "neither CUDA_VISIBLE_DEVICES nor FLEETWRIGHT_AGENT_GPUS names"),
        ({"CUDA_VISIBLE_DEVICES": "4"}, "CUDA_VISIBLE_DEVICES: 4 of 4 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-"}, "CUDA_VISIBLE_DEVICES: GPU- fits 4 of 4 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-xx"}, "fits 0 of 4 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1"}, "MIG-1 is a slice"),
        ({"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "void"}, "set FLEETWRIGHT_AGENT_GPUS"),
    ],
)
def test_an_ambiguous_environment_is_an_error(environment: dict[str, str], message: str) -> None:
    assert message in own(environment)


def test_the_containers_driver_overrides_the_environment() -> None:
    shown = ["GPU-bb", "GPU-dd"]
    assert own({"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "void"}, local=shown) == ("GPU-dd",)
    assert "the agent does not list GPU-zz" in own({"CUDA_VISIBLE_DEVICES": "0"}, local=["GPU-zz"])


def test_indices_on_a_mixed_node_need_pci_bus_order() -> None:
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in own({"CUDA_VISIBLE_DEVICES": "0"}, listed=MIXED)
    assert own({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, listed=MIXED) == ("GPU-aa",)
    assert own({"CUDA_VISIBLE_DEVICES": "GPU-bb"}, listed=MIXED) == ("GPU-bb",)


@given(shown=st.sets(st.integers(0, 3), min_size=1), text=st.text(alphabet="0123-,GPUabcd", max_size=12))
def test_gpus_outside_the_container_are_never_returned(shown: set[int], text: str) -> None:
    there = [NODE[at].uuid for at in sorted(shown)]
    found = own({"CUDA_VISIBLE_DEVICES": text}, local=there)
    assert isinstance(found, str) or set(found) <= set(there)
