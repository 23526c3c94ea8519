"""Recordings of engines as loads and traces: counts per expert, layers by their number in the whole model."""

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fleet.errors import DocumentError
from placement.formats import read_loads, read_trace, read_windows
from placement.formats.torch_files import read_torch
from tests.placement.formats.files import data_file, npy, npz

RANKS = ["sglang_per_token_rank0.pt", "sglang_per_token_rank1.pt"]
STATISTICS = ["rank0.safetensors", "rank1.safetensors"]


def named(*names: str) -> list[tuple[str, bytes]]:
    return [(name, data_file(name)) for name in names]


def by_rank(*data: bytes) -> list[tuple[str, bytes]]:
    """The files under names of the ranks of one recording."""
    return [(f"expert_distribution_recorder_1763.5_{rank}.pt", each) for rank, each in enumerate(data)]


class TestTorchFiles:
    def test_every_kind_of_value_is_read_unchanged(self) -> None:
        values = read_torch(data_file("values.pt"))
        base = np.arange(24).reshape(4, 6)
        arrays: dict[str, npt.NDArray[Any]] = {
            "view": base[1:3, ::2],
            "turned": base.T,
            "half": np.array([1.5, -2.0], dtype=np.float16),
            "narrow": np.array([1, 65535], dtype=np.uint16),
            "empty": np.empty((0, 3), dtype=np.float32),
            "scalar": np.array(5.0),
        }
        for key, expected in arrays.items():
            found = values.pop(key)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), key
            assert found.tolist() == expected.tolist(), key
        assert values == {
            "flag": True,
            "text": "a\u00e9",
            "big": 2**40,
            "negative": -3,
            "pair": (1, 2.5),
            "nothing": None,
            "nested": [{"a": [1, 2]}, ()],
        }

    def test_the_legacy_format_is_refused_by_name(self) -> None:
        with pytest.raises(DocumentError, match=r"^legacy.pt: is a pickle without a zip around it"):
            read_loads(data_file("legacy.pt"), name="legacy.pt")


class TestSglang:
    def test_a_stat_recording_is_one_window_without_dense_layers(self) -> None:
        recorded = read_torch(data_file("sglang_stat.pt"))["logical_count"]
        loads = read_loads(data_file("sglang_stat.pt"), name="stat.pt")
        assert (loads.layers, loads.hidden_layers, loads.windows) == ((1, 2, 3), 4, 1)
        assert (loads.total == recorded.sum(axis=0)[1:]).all()

    def test_json_counts_equal_the_tensor(self) -> None:
        recorded = read_torch(data_file("sglang_stat.pt"))["logical_count"]
        for counts in (recorded, recorded.sum(axis=0)):
            text = json.dumps({"logical_count": counts.tolist()})
            loads = read_loads(text.encode(), name="counts.json")
            assert (loads.total == recorded.sum(axis=0)[1:]).all()
            assert loads.layers == (1, 2, 3)

    def test_tokens_of_all_ranks_add_up_to_the_loads(self) -> None:
        traces = [read_trace(data, name=name) for name, data in named(*RANKS)]
        loads = read_windows(by_rank(*map(data_file, RANKS)))
        assert [(trace.tokens, trace.layers, trace.active) for trace in traces] == [(12, 3, 2), (14, 3, 2)]
        assert {trace.experts_per_layer for trace in traces} == {8}
        assert (loads.total == sum(trace.loads() for trace in traces)).all()
        assert loads.layers == (1, 2, 3)

    def test_physical_slots_are_mapped_to_logical_experts(self) -> None:
        recording = read_torch(data_file(RANKS[0]))
        record = recording["records"][0]
        trace = read_trace(data_file(RANKS[0]), name="rank0.pt")
        for layer in (1, 2, 3):
            slots = record["topk_ids_of_layer"][layer, :, :2]
            experts = recording["last_physical_to_logical_map"][layer][slots]
            assert (trace.experts[: len(slots), layer - 1] == experts).all()

    def test_the_same_rank_file_twice_is_refused(self) -> None:
        with pytest.raises(DocumentError, match="hold the same tokens twice"):
            read_windows(by_rank(data_file(RANKS[0]), data_file(RANKS[0])), least_tokens=1)

    def test_identical_recordings_of_all_ranks_count_once(self) -> None:
        once = read_loads(data_file("sglang_stat.pt"), name="stat.pt")
        twice = read_windows(by_rank(data_file("sglang_stat.pt"), data_file("sglang_stat.pt")))
        assert (once.tokens == twice.tokens).all()

    def test_different_recordings_of_all_ranks_are_windows_and_not_ranks(self) -> None:
        early = json.dumps({"logical_count": [[0, 0], [3, 4]]}).encode()
        late = json.dumps({"logical_count": [[0, 0], [5, 6]]}).encode()
        message = r"_0.pt, expert_distribution_recorder_1763.5_1.pt: are different recordings, each of all ranks"
        with pytest.raises(DocumentError, match=message):
            read_windows(by_rank(early, late))
        windows = read_windows([("a", early), ("b", late)])
        assert windows.tokens.tolist() == [[[3, 4]], [[5, 6]]]
        assert (windows.layers, windows.hidden_layers) == ((1,), 2)

    def test_counts_cannot_be_read_as_a_trace(self) -> None:
        with pytest.raises(DocumentError, match=r"logical_count: holds no single tokens; record with --expert-dist"):
            read_trace(data_file("sglang_stat.pt"), name="stat.pt")

    @pytest.mark.parametrize(
        ("counts", "message"),
        [
            ([[0, 0], [1, -1]], r"logical_count\[0\]\[1\]\[1\]: must be a finite number from 0 up, got -1"),
            ([[0, 0], [1, float("nan")]], r"logical_count\[0\]\[1\]\[1\]: must be a finite number from 0 up, got nan"),
            ([[0, 0], [0, 0]], "logical_count: must be above 0 somewhere"),
            ([[0, 0], [1, 0]], r"loads\[1\]\[1\]: must be above 0"),
            ([[0, 0], [1]], r"logical_count\[1\]: must hold as many experts as the first \(2\), got 1"),
            ([1, 2], r"logical_count: must be \[steps x\] layers x experts"),
            ([], "logical_count: must be a list of layers"),
            ([[1, "2"]], r"logical_count\[0\]\[1\]: must be a number, got '2'"),
            ([[1, True]], r"logical_count\[0\]\[1\]: must be a number, got 'True'"),
            ([[1, 10**400]], "logical_count: must hold numbers below"),
            ([[[[1]]]], r"logical_count\[0\]\[0\]\[0\]: must be a number: lists may be nested 3 deep"),
        ],
    )
    def test_invalid_counts_are_refused_with_their_position(self, counts: Any, message: str) -> None:
        with pytest.raises(DocumentError, match=f"^c.json: {message}"):
            read_loads(json.dumps({"logical_count": counts}).encode(), name="c.json")


class TestRanksByName:
    def test_files_named_by_rank_form_one_window(self) -> None:
        files = named(*STATISTICS)
        assert (read_windows(files).tokens == [sum(read_loads(data, name=name).total for name, data in files)]).all()
        recorded = [(f"d/{name}", data) for name, data in by_rank(*map(data_file, RANKS))]
        apart = [read_trace(data, name=name).loads() for name, data in recorded]
        assert (read_windows(recorded).tokens == [sum(apart)]).all()

    def test_another_folder_or_a_repeated_rank_starts_a_new_window(self) -> None:
        one, two = (data_file(name) for name in STATISTICS)
        together = read_windows(named(*STATISTICS)).total
        first, second = read_loads(one, name="a").total, read_loads(two, name="b").total
        for names in (["x/rank0", "y/rank0"], ["rank0", "rank0"], ["rank1", "rank1"]):
            found = read_windows([(f"{name}.safetensors", data) for name, data in zip(names, (one, two), strict=True)])
            assert (found.tokens == [first, second]).all()
        mixed = ["x/rank0", "y/rank0", "x/rank1", "y/rank1"]
        found = read_windows([(f"{name}.safetensors", d) for name, d in zip(mixed, (one, two, two, one), strict=True)])
        assert (found.tokens == [together, together]).all()

    def test_the_same_file_as_two_ranks_is_refused(self) -> None:
        with pytest.raises(DocumentError, match=r"^rank0.safetensors, rank1.safetensors: hold the same tokens twice"):
            read_windows([(name, data_file(STATISTICS[0])) for name in STATISTICS])


class TestTensorRtLlm:
    def test_iterations_and_ranks_add_up(self) -> None:
        loads = read_windows(named(*STATISTICS))
        one = [read_loads(data, name=name) for name, data in named(*STATISTICS)]
        assert (loads.layers, loads.hidden_layers, loads.experts) == ((3, 4, 5), 6, 8)
        assert (loads.total == one[0].total + one[1].total).all()

    def test_raw_recordings_are_read_as_traces(self) -> None:
        trace = read_trace(data_file("rank0_raw.safetensors"), name="rank0_raw.safetensors", experts=8)
        assert (trace.tokens, trace.layers, trace.active, trace.experts_per_layer) == (10, 3, 2, 8)
        loads = read_loads(data_file("rank0_raw.safetensors"), name="raw", experts=8, least_tokens=0.5)
        assert (loads.total == np.maximum(trace.loads(), 0.5)).all()
        assert loads.layers == (3, 4, 5)

    def test_counts_and_raw_tokens_cannot_be_combined(self) -> None:
        with pytest.raises(DocumentError, match="must all have the same layers and experts"):
            read_windows(by_rank(data_file("rank0.safetensors"), data_file("sglang_stat.pt")))

    @pytest.mark.parametrize(
        ("tensors", "message"),
        [
            ({"weight": [1, 2]}, "weight: must be whole numbers under a name"),
            ({"1_2": [1.5, 2]}, "1_2: must be whole numbers under a name"),
            ({"1_2": [1, 2], "2_2": [1, 2], "1_3": [1, 2]}, "layer 3: must have been recorded in the same iterations"),
            ({"1_2": [1, 2], "1_3": [1, 2, 3]}, "must have as many experts in each layer"),
            ({"1_2": [1, 2], "1_3": [[1, 2]]}, "must hold tensors of one dimension"),
            ({"1_2": [[0, 1]], "1_3": [[0, 1], [1, 2]]}, "must hold as many tokens in every layer"),
            ({}, "must hold at least one tensor"),
        ],
    )
    def test_unknown_tensors_are_refused(self, tensors: dict[str, Any], message: str) -> None:
        with pytest.raises(DocumentError, match=message):
            read_loads(safetensors({name: np.array(value) for name, value in tensors.items()}), name="s.safetensors")


def safetensors(tensors: dict[str, npt.NDArray[Any]]) -> bytes:
    header, body = {}, b""
    for name, value in tensors.items():
        start, body = len(body), body + value.tobytes()
        dtype = {"i": "I", "f": "F"}[value.dtype.kind] + str(value.dtype.itemsize * 8)
        header[name] = {"dtype": dtype, "shape": value.shape, "data_offsets": [start, len(body)]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


class TestVllm:
    ROUTED = np.array([[[0, 0], [1, 2], [0, 3]], [[0, 0], [3, 0], [2, 1]]], dtype=np.uint8)  # layer 0 is dense

    @staticmethod
    def response(*choices: npt.NDArray[Any]) -> dict[str, Any]:
        encoded = [base64.b64encode(npy(choice)).decode() for choice in choices]
        return {"id": "r", "choices": [{"index": 0, "routed_experts": text} for text in encoded]}

    def test_an_array_covers_all_layers_and_dense_layers_are_dropped(self) -> None:
        trace = read_trace(npy(self.ROUTED), name="routed.npy")
        assert trace.experts.tolist() == self.ROUTED[:, 1:].tolist()
        loads = read_loads(npy(self.ROUTED), name="routed.npy", least_tokens=0.1)
        assert (loads.layers, loads.hidden_layers, loads.experts) == ((1, 2), 3, 4)
        assert loads.total.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1]]

    def test_tokens_from_the_prefix_cache_are_not_counted(self) -> None:
        cached = np.concatenate([np.zeros_like(self.ROUTED[:1]), self.ROUTED])
        assert read_trace(npy(cached), name="routed.npy").tokens == 2

    def test_responses_add_up_in_every_format(self) -> None:
        one, two = self.response(self.ROUTED[:1]), self.response(self.ROUTED[1:], self.ROUTED[:1])
        lines = "\n".join(json.dumps(entry) for entry in (one, two)).encode()
        for data in (lines, json.dumps([one, two]).encode()):
            assert read_trace(data, name="r.jsonl").tokens == 3
        alone = read_trace(json.dumps(self.response(self.ROUTED)).encode(), name="r.json")
        assert alone.experts.tolist() == self.ROUTED[:, 1:].tolist()

    def test_more_experts_than_used_must_be_given(self) -> None:
        assert read_trace(npy(self.ROUTED), name="r.npy").experts_per_layer == 4
        assert read_trace(npy(self.ROUTED), name="r.npy", experts=6).experts_per_layer == 6
        with pytest.raises(DocumentError, match=r"loads\[1\]\[4\]: must be above 0"):
            read_loads(npy(self.ROUTED), name="r.npy", experts=6)

    @pytest.mark.parametrize(
        ("response", "message"),
        [
            ({"choices": [{"text": "x"}]}, "routed_experts: is in no response; start vLLM with --enable-return-routed"),
            (
                {"choices": [{"routed_experts": "!"}]},
                r"\[0\].choices\[0\].routed_experts: must be an .npy array in base64",
            ),
            ({"choices": [{"routed_experts": "AAAA"}]}, "numbers without their shape are ambiguous"),
            ({"choices": [{"routed_experts": 3}]}, "must be an .npy array in base64"),
            ({"routed_experts": base64.b64encode(npy([1.5])).decode()}, "must be whole numbers, tokens x layers x k"),
        ],
    )
    def test_invalid_responses_are_refused(self, response: Any, message: str) -> None:
        with pytest.raises(DocumentError, match=message):
            read_trace(json.dumps(response).encode(), name="r.json")


class TestPlainTraces:
    def test_a_trace_is_read_from_its_key(self) -> None:
        experts = np.array([[[0, 1]], [[2, 1]]])
        for data in (npz(trace=experts), npz(compressed=True, trace=experts, load=np.ones((1, 3))), npy(experts)):
            trace = read_trace(data, name="t")
            assert trace.experts.tolist() == experts.tolist()
            assert trace.experts_per_layer == 3

    def test_loads_are_counted_from_the_trace_if_not_stored(self) -> None:
        experts = np.array([[[0, 1]], [[2, 1]]])
        assert read_loads(npz(trace=experts), name="t").total.tolist() == [[1, 2, 1]]
        assert read_loads(npz(trace=experts, load=[[5, 6, 7]]), name="t").total.tolist() == [[5, 6, 7]]

    @pytest.mark.parametrize(
        ("trace", "message"),
        [
            ([[[3, 3]]], "must not name an expert twice for one token"),
            ([[[3, -1]]], "must be a whole number from 0"),
            ([[[0.5, 1]]], "trace: must be whole numbers, tokens x layers x k"),
            ([[0, 1]], "trace: must be whole numbers, tokens x layers x k"),
            (np.zeros((0, 1, 2), dtype=int), "trace: must be whole numbers, tokens x layers x k"),
        ],
    )
    def test_invalid_trace_arrays_are_refused(self, trace: Any, message: str) -> None:
        with pytest.raises(DocumentError, match=message):
            read_trace(npz(trace=trace), name="t.npz")

    def test_loads_cannot_be_read_as_a_trace(self) -> None:
        with pytest.raises(DocumentError, match="holds counts, expected the experts of single tokens"):
            read_trace(npz(load=[[1, 2]]), name="t.npz")
