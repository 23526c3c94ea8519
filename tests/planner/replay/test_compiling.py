"""The kernel is compiled late, cached on disk where possible, and compiled again when its arithmetic changes."""

import subprocess
import sys
import tempfile
from typing import Any, NoReturn

import numpy as np
import pytest
from numba import from_dtype

from fleet.numba_cache import jit_entry
from planner.replay import kernel as compiled
from planner.replay import kernel_layout
from planner.replay.kernel_layout import ARITHMETIC, COSTS


def test_a_plan_without_replay_does_not_load_numba() -> None:
    script = "import planner.replay, sys; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_without_a_writable_cache_the_kernel_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only install, no home, no NUMBA_CACHE_DIR."""

    def refuse(**_: Any) -> NoReturn:
        raise OSError("Read-only file system")

    def nothing(_packed: Any, _replicas: Any, requests: Any, _slots: Any, _polls: Any) -> None:
        requests[0].replica = 7

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    requests = kernel_layout.fresh_requests(
        arrival_s=np.zeros(1),
        input_tokens=np.ones(1, int),
        output_tokens=np.ones(1, int),
        delay_s=0.0,
        carried=False,
    )
    slots = np.zeros((1, 2, 1), dtype=int)
    jit_entry(compiled.SIGNATURE)(nothing)(
        np.zeros(1, COSTS), kernel_layout.fresh_replicas(1), requests, slots, slots[0]
    )
    assert requests["replica"][0] == 7


def test_a_change_of_arithmetic_changes_the_cache_key() -> None:
    other = np.dtype([*((name, COSTS[name]) for name in COSTS.names or () if name != ARITHMETIC), ("x", int)])
    assert from_dtype(COSTS) == from_dtype(COSTS)
    assert from_dtype(COSTS) != from_dtype(other)
    assert ARITHMETIC in str(from_dtype(COSTS))
