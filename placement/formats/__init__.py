"""Expert loads and placements in the files that engines write and load.  Bytes in, values out and back."""

from placement.formats.engines import (
    Engine,
    EnginePlacement,
    ascend_json,
    sglang_json,
    trtllm_yaml,
    vllm_json,
    write_for,
)
from placement.formats.kinds import Kind, kind_of
from placement.formats.loaded import read_loaded
from placement.formats.reading import read_loads, read_ranks, read_trace, read_windows

__all__ = [
    "Engine",
    "EnginePlacement",
    "Kind",
    "ascend_json",
    "kind_of",
    "read_loaded",
    "read_loads",
    "read_ranks",
    "read_trace",
    "read_windows",
    "sglang_json",
    "trtllm_yaml",
    "vllm_json",
    "write_for",
]
