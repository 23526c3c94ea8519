"""A cached compilation is valid only while its sources and constants are unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = "from fleet.numba_cache import jit_inner\n@jit_inner\ndef more(value):\n    return value + {}\n"
CONSTANT = "MIN = {}\n"
ENTRY = """
from numba import int64
from fleet.numba_cache import jit_entry
from constant import MIN
from parts import more

@jit_entry(int64(int64))
def answer(value):
    return more(value) + MIN

print(answer(1), sum(answer.stats.cache_hits.values()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts.py").write_text(PARTS.format(1))
    (tmp_path / "constant.py").write_text(CONSTANT.format(100))
    (tmp_path / "entrance.py").write_text(ENTRY)
    return tmp_path


def run_module(folder: Path) -> str:
    """The printed result and the number of cache hits."""
    done = subprocess.run(
        [sys.executable, "-c", "import entrance"],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    return done.stdout.strip()


def test_the_cache_is_valid_until_a_function_or_constant_of_another_file_changes(folder: Path) -> None:
    assert run_module(folder) == "102 0"
    assert run_module(folder) == "102 1"
    (folder / "parts.py").write_text(PARTS.format(20))
    assert run_module(folder) == "121 0"
    (folder / "constant.py").write_text(CONSTANT.format(300))
    assert run_module(folder) == "321 0"
    assert run_module(folder) == "321 1"


PAIR = """
from typing import NamedTuple
from numba import int64, typeof
from fleet.numba_cache import jit_entry

class {name}(NamedTuple):
    first: int
    second: int

@jit_entry(int64(typeof({name}(1, 2))))
def total(pair):
    return pair.first + pair.second

print(total({name}(1, 2)), sum(total.stats.cache_hits.values()))
"""


def test_a_cache_index_with_a_renamed_argument_type_is_replaced(tmp_path: Path) -> None:
    for name in ("Pair", "Both"):
        (tmp_path / "entrance.py").write_text(PAIR.format(name=name))
        assert run_module(tmp_path) == "3 0"
        assert run_module(tmp_path) == "3 1"
