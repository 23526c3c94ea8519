"""Layouts: slots are numbered GPU by GPU and node by node; errors name the field and the allowed values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.layout import Layout


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_an_even_layout_numbers_slots_by_gpu_and_node(nodes: int, gpus_of_node: int, slots_of_gpu: int) -> None:
    gpus = nodes * gpus_of_node
    layout = Layout.even(slots=gpus * slots_of_gpu, gpus=gpus, nodes=nodes)
    assert layout.gpu_of_slot.tolist() == [slot // slots_of_gpu for slot in range(layout.slots)]
    assert layout.node_of_gpu.tolist() == [gpu // gpus_of_node for gpu in range(gpus)]
    assert layout.is_even
    assert (layout.gpus, layout.nodes) == (gpus, nodes)
    assert layout.shares.tolist() == pytest.approx([1 / gpus] * gpus)


def test_an_uneven_layout_numbers_slots_by_gpu() -> None:
    layout = Layout.of(node_of_gpu=[0, 0, 1], slots_of_gpu=[3, 1, 2], speeds=[2, 1, 1])
    assert layout.first_slot.tolist() == [0, 3, 4, 6]
    assert layout.gpu_of_slot.tolist() == [0, 0, 0, 1, 2, 2]
    assert layout.node_of_slot.tolist() == [0, 0, 0, 0, 1, 1]
    assert layout.shares.tolist() == [0.5, 0.25, 0.25]
    assert layout.slots == 6
    assert not layout.is_even


def test_nodes_of_different_size_are_not_even() -> None:
    assert not Layout.of(node_of_gpu=[0, 0, 1], slots_of_gpu=[2, 2, 2]).is_even


@pytest.mark.parametrize(
    ("slots", "gpus", "nodes", "message"),
    [
        (8, 0, 1, "gpus: must be from 1 to 4096, got 0"),
        (8, 4097, 1, "gpus: must be from 1 to 4096, got 4097"),
        (8, 4, 3, r"nodes: must divide the number of GPUs \(4\), got 3"),
        (8, 4, 0, r"nodes: must divide the number of GPUs \(4\), got 0"),
        (0, 4, 2, "slots: must be from 1 to 16384, got 0"),
        (16_388, 4, 2, "slots: must be from 1 to 16384, got 16388"),
        (10, 4, 2, r"slots: must be a multiple of the number of GPUs \(4\), got 10; nearest: 8 or 12"),
        (3, 4, 2, r"slots: must be a multiple of the number of GPUs \(4\), got 3; nearest: 4"),
    ],
)
def test_invalid_even_counts_are_refused(slots: int, gpus: int, nodes: int, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        Layout.even(slots=slots, gpus=gpus, nodes=nodes)


@pytest.mark.parametrize(
    ("node_of_gpu", "slots_of_gpu", "speeds", "message"),
    [
        ([], [], None, "gpus: must be from 1 to 4096, got 0"),
        ([1, 1], [1, 1], None, "nodes: GPUs must be numbered node by node, nodes from 0"),
        ([0, 2], [1, 1], None, "nodes: GPUs must be numbered node by node, nodes from 0"),
        ([0, 1, 0], [1, 1, 1], None, "nodes: GPUs must be numbered node by node, nodes from 0"),
        ([0, 0], [1], None, r"gpu_slots: must be one number per GPU \(2\), got 1"),
        ([0, 0], [1, 0], None, "gpu_slots: must be at least 1 each and 16384 together"),
        ([0, 0], [1, 16_384], None, "gpu_slots: must be at least 1 each and 16384 together"),
        ([0, 0], [1, 1], [1.0], r"gpu_speeds: must be one number per GPU \(2\), got 1"),
        ([0, 0], [1, 1], [1.0, 0.0], "gpu_speeds: must be from 0.001 to 1000 each"),
        ([0, 0], [1, 1], [1.0, float("nan")], "gpu_speeds: must be from 0.001 to 1000 each"),
        ([0, 0], [1, 1], [1.0, 1e4], "gpu_speeds: must be from 0.001 to 1000 each"),
    ],
)
def test_invalid_uneven_counts_are_refused(
    node_of_gpu: list[int], slots_of_gpu: list[int], speeds: list[float] | None, message: str
) -> None:
    with pytest.raises(RuleError, match=message):
        Layout.of(node_of_gpu=node_of_gpu, slots_of_gpu=slots_of_gpu, speeds=speeds)


def test_two_violations_are_reported_together() -> None:
    with pytest.raises(RuleError) as caught:
        Layout.even(slots=0, gpus=4, nodes=3)
    assert [path for path, _ in caught.value.violations] == [("nodes",), ("slots",)]
