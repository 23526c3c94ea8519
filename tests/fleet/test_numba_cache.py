"""A cached compilation is valid while its sources and constants are unchanged, also where nothing is writable."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.numba_cache import modules_with_kernels
from scripts.repo_checks import ROOT, tracked_files

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1

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


def run_module(
    folder: Path, *, environment: dict[str, str] | None = None, before: Callable[[], None] | None = None
) -> str:
    """The printed result and the number of cache hits."""
    done = subprocess.run(
        [sys.executable, "-c", "import entrance"],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", **(environment or {})},
        preexec_fn=before,
    )
    return done.stdout.strip()


def respect_modes() -> None:
    """Let file modes bind root too."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def set_modes(folder: Path, *, writable: bool) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o755 if writable else 0o555) if path.is_dir() else (0o644 if writable else 0o444))


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


def test_a_read_only_cache_is_read_and_times_of_files_do_not_matter(folder: Path) -> None:
    """As in an image: compiled at build, times of files rounded by its layers, nothing writable, no home."""
    kept = {"NUMBA_CACHE_DIR": str(folder / "numba"), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    assert run_module(folder, environment=kept) == "102 0"
    for path in folder.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    set_modes(folder, writable=False)
    files = set(folder.rglob("*"))
    try:
        assert run_module(folder, environment=kept, before=respect_modes) == "102 1"
        (folder / "parts.py").chmod(0o644)
        (folder / "parts.py").write_text(PARTS.format(20))
        assert run_module(folder, environment=kept, before=respect_modes) == "121 0"
        assert run_module(folder, environment=kept, before=respect_modes) == "121 0"  # nothing was kept
        assert set(folder.rglob("*")) == files
    finally:
        set_modes(folder, writable=True)
    assert run_module(folder, environment=kept) == "121 0"
    assert run_module(folder, environment=kept) == "121 1"


def test_every_module_with_a_kernel_is_compiled_for_the_image() -> None:
    entries = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in tracked_files()
        if path.suffix == ".py" and not path.is_relative_to(ROOT / "tests")
        if any(line.startswith("@jit_entry(") for line in path.read_text(encoding="utf-8").splitlines())
    }
    assert set(modules_with_kernels()) == entries != set()
