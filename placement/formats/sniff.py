"""The format of a file, for the provenance: by the same marks as the readers, without reading all of it."""

from collections.abc import Mapping
from typing import Literal

from placement.formats import engine_readers, sglang_recordings, vllm_responses
from placement.formats.arrays import NPY_START, ZIP_START, open_archive, read_npy
from placement.formats.torch_files import PICKLE
from placement.formats.trtllm_statistics import is_safetensors

Kind = Literal[
    "placement.json",
    "sglang-recording",
    "sglang-placement",
    "trtllm-statistics",
    "trtllm-placement",
    "ascend-placement",
    "vllm-routed-experts",
    "csv",
    "json",
    "npy",
    "npz",
    "pt",
    "yaml",
]
KEYS: Mapping[str, Kind] = {  # the first match counts
    "schema_version": "placement.json",
    sglang_recordings.COUNT: "sglang-recording",
    sglang_recordings.RECORDS: "sglang-recording",
    engine_readers.ASSIGNMENTS: "trtllm-placement",
    engine_readers.DEVICES: "ascend-placement",
    engine_readers.MAP: "sglang-placement",
    vllm_responses.FIELD: "vllm-routed-experts",
}


def kind_of(data: bytes, *, name: str) -> Kind:
    """The format of a file that a reader accepted."""
    if data.startswith(ZIP_START):
        archive = open_archive(data)
        pickles = [member for member in archive.names if member.endswith(PICKLE)]
        return _by_key(archive.member(pickles[0]), quote="", other="pt") if pickles else "npz"
    if data.startswith(NPY_START):
        return "vllm-routed-experts" if vllm_responses.is_array(read_npy(data)) else "npy"
    if is_safetensors(data):
        return "trtllm-statistics"
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return _by_key(data, quote='"', other="json")
    return _by_key(data, quote="", other="yaml" if name.casefold().endswith((".yaml", ".yml")) else "csv")


def _by_key(data: bytes, *, quote: str, other: Kind) -> Kind:
    """JSON quotes its keys; a pickle and YAML need not."""
    found = (kind for key, kind in KEYS.items() if f"{quote}{key}{quote}".encode() in data)
    return next(found, other)
