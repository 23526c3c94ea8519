"""Readers of expert loads and token traces, for files of any engine: recognised by content, then by the name.

docs/reference/engine-files.md lists the files.  Errors name the file, the field and the allowed values.  Nothing in a
file is executed, and `arrays` limits unpacking.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fleet.documents import RuleError, Violation
from placement.arrays import Floats
from placement.formats import sglang_recordings, trtllm_statistics, vllm_responses
from placement.formats.arrays import NPY_START, ZIP_START, Numbers, open_archive, read_member, read_npy
from placement.formats.counts import Counts, Routed, Source, of_file, routed_of_whole_model
from placement.formats.json_csv import nested_floats, read_csv, read_json
from placement.formats.torch_files import PICKLE, read_torch
from placement.formats.trtllm_statistics import is_safetensors, read_safetensors
from placement.loads import ExpertLoads
from placement.token_trace import TokenTrace

LOAD, TRACE = "load", "trace"
File = tuple[str, bytes]  # name and content
Files = Iterable[File]
RANK_FILES = (  # of SGLang and of TensorRT-LLM
    re.compile(r"(?P<recording>.*expert_distribution_recorder_[0-9.]+)_(?P<rank>[0-9]+)\.pt"),
    re.compile(r"(?P<recording>(?:.*/)?)rank(?P<rank>[0-9]+)(?:_raw)?\.safetensors"),
)


def read_loads(data: bytes, *, name: str, least_tokens: float = 0.0, experts: int | None = None) -> ExpertLoads:
    """Loads of one file, one or more windows.

    `experts` per layer matters only for traces, whose highest expert may have no token.
    """
    with of_file(name):
        return _loads(_counts(_source(data, name), experts), least_tokens)


def read_windows(files: Files, *, least_tokens: float = 0.0, experts: int | None = None) -> ExpertLoads:
    """Loads of several recordings, oldest first, each with its own windows; rank files of one recording are joined."""
    groups = _by_recording(files)
    with of_file(_names(file for group in groups for file in group)):
        parts = [_together(group, experts) for group in groups]
        first = _alike(parts)
        tokens = np.concatenate([counts.tokens for counts in parts])
        return _loads(Counts(tokens, first.layers, first.hidden_layers), least_tokens)


def read_trace(data: bytes, *, name: str, experts: int | None = None) -> TokenTrace:
    """The experts of each token in each MoE layer."""
    with of_file(name):
        source = _source(data, name, as_trace=True)
        if isinstance(source, Counts):
            raise RuleError([((), "holds counts, expected the experts of single tokens (tokens x layers x k)")])
        return TokenTrace.of(source.experts, experts_per_layer=source.experts_per_layer(experts))


def _by_recording(files: Iterable[File]) -> list[list[File]]:
    """Files of one recording together, in the order of each recording's first file.

    Engines write one file per rank.  A rank that repeats starts another recording, for names without their folder.
    """
    groups: list[list[File]] = []
    open_groups: dict[str, tuple[list[File], set[str]]] = {}  # by recording, with the ranks it has
    for file in files:
        matched = next((found for name in RANK_FILES if (found := name.fullmatch(file[0]))), None)
        if matched is None:
            groups.append([file])
            continue
        recording, rank = matched["recording"], matched["rank"]
        if recording not in open_groups or rank in open_groups[recording][1]:
            open_groups[recording] = ([], set())
            groups.append(open_groups[recording][0])
        open_groups[recording][0].append(file)
        open_groups[recording][1].add(rank)
    return groups


def _names(files: Files) -> str:
    return ", ".join(name for name, _ in files) or "loads"


def _loads(counts: Counts, least_tokens: float) -> ExpertLoads:
    try:
        return ExpertLoads.of(
            counts.tokens, layers=counts.layers, hidden_layers=counts.hidden_layers, least_tokens=least_tokens
        )
    except RuleError as error:
        raise RuleError(_renumbered(violation, counts.layers) for violation in error.violations) from error


def _renumbered(violation: Violation, layers: tuple[int, ...] | None) -> Violation:
    """The rows of the error are those of the file, dense layers included."""
    path, message = violation
    match path:
        case ("loads", int(row), *rest) if layers is not None and len(rest) < 2:
            return ("loads", layers[row], *rest), message
        case _:
            return violation


def _counts_in(data: bytes, name: str, experts: int | None) -> Counts:
    with of_file(name):
        return _counts(_source(data, name), experts)


def _counts(source: Source, experts: int | None) -> Counts:
    if isinstance(source, Counts):
        return source
    trace = TokenTrace.of(source.experts, experts_per_layer=source.experts_per_layer(experts))
    return Counts(trace.loads()[np.newaxis], source.layers, source.hidden_layers, of_one_rank=True)


def _alike(parts: Sequence[Counts]) -> Counts:
    """The first, where all have the same layers and experts."""
    if not parts:
        raise RuleError([((), "expected at least one file")])
    first = parts[0]
    for part in parts[1:]:
        same = part.tokens.shape[1:] == first.tokens.shape[1:] and part.layers == first.layers
        if not same or part.hidden_layers != first.hidden_layers:
            raise RuleError([((), "must all have the same layers and experts")])
    return first


def _together(files: Sequence[tuple[str, bytes]], experts: int | None) -> Counts:
    """The sum of separate counts of ranks; counts of all ranks together are counted once."""
    parts = [_counts_in(data, name, experts) for name, data in files]
    first = _alike(parts)
    if any(part.tokens.shape != first.tokens.shape or part.of_one_rank != first.of_one_rank for part in parts):
        raise RuleError([((), "must all be of one recording, one file of each rank")])
    if first.of_one_rank:
        if len({data for _, data in files}) < len(files):
            raise RuleError([((), "hold the same tokens twice: two of the files are equal")])
        tokens: Floats = np.sum([part.tokens for part in parts], axis=0)
        return Counts(tokens, first.layers, first.hidden_layers, of_one_rank=True)
    if not all(np.array_equal(part.tokens, first.tokens) for part in parts):
        raise RuleError([((), "are different recordings, each of all ranks; give them as windows")])
    return first


def _source(data: bytes, name: str, *, as_trace: bool = False) -> Source:
    """The content of the file; `as_trace` decides for arrays that could be either."""
    if data.startswith(ZIP_START):
        return _of_archive(data, as_trace=as_trace)
    if data.startswith(NPY_START):
        return _of_array(read_npy(data), as_trace=as_trace)
    if data.startswith(b"\x80"):
        message = "is a pickle without a zip around it; save it again with PyTorch 1.6 or later, or as .npz or JSON"
        raise RuleError([((), message)])
    if is_safetensors(data):
        return trtllm_statistics.statistics(read_safetensors(data))
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start in (b"{", b"[") or name.casefold().endswith((".json", ".jsonl")):
        return _of_json(data, as_trace=as_trace)
    tokens, layers = read_csv(data)
    return Counts(tokens, layers)


def _of_archive(data: bytes, *, as_trace: bool) -> Source:
    archive = open_archive(data)
    if any(member.endswith(PICKLE) for member in archive.names):
        return _of_recording(read_torch(data), as_trace=as_trace)
    wanted = (TRACE, LOAD) if as_trace else (LOAD, TRACE)
    for key in wanted:
        if f"{key}.npy" in archive.names:
            found = read_member(archive, key)
            return _routed(found) if key == TRACE else Counts(_windows(found))
    raise RuleError([((), f"must hold an array under {LOAD} or {TRACE}, got {', '.join(archive.names)[:200]}")])


def _of_recording(value: Any, *, as_trace: bool) -> Source:
    if isinstance(value, np.ndarray):
        return _of_array(value, as_trace=as_trace)
    if not sglang_recordings.is_recording(value):
        raise RuleError([((), "must be an SGLang recording (logical_count, or records), or a tensor of counts")])
    return sglang_recordings.routed_of(value) if as_trace else sglang_recordings.counts_of(value)


def _of_array(found: Numbers, *, as_trace: bool) -> Source:
    if vllm_responses.is_array(found):
        return routed_of_whole_model(found)
    return _routed(found) if as_trace else Counts(_windows(found))


def _windows(found: Numbers) -> Floats:
    return (found if found.ndim != 2 else found[np.newaxis]).astype(np.float64)


def _routed(found: Numbers) -> Routed:
    if found.ndim != 3 or not found.size or found.dtype.kind not in "iu":
        message = f"must be whole numbers, tokens x layers x k, got {found.dtype} of shape {found.shape}"
        raise RuleError([((TRACE,), message)])
    return Routed(found)


def _of_json(data: bytes, *, as_trace: bool) -> Source:
    value = _one_or_lines(data)
    if found := vllm_responses.responses_in(value):
        return vllm_responses.routed_of(found)
    if sglang_recordings.is_recording(value):
        return sglang_recordings.routed_of(value) if as_trace else sglang_recordings.counts_of(value)
    if isinstance(value, dict) and LOAD not in value:
        keys = f"{LOAD}, {sglang_recordings.COUNT} or {vllm_responses.FIELD}"
        raise RuleError([((), f"must have {keys}, got {', '.join(map(str, value))[:200]}")])
    return Counts(_windows(nested_floats(value[LOAD] if isinstance(value, dict) else value, field=LOAD)))


def _one_or_lines(data: bytes) -> Any:
    """One JSON document, or one per line."""
    try:
        return read_json(data)
    except RuleError:
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) < 2 or not all(line.lstrip().startswith(b"{") for line in lines):
            raise
        return [read_json(line) for line in lines]
