"""The images load every compiled kernel of jobs before their worker is ready."""

import os
import re
import subprocess
import sys

import pytest

from api.jobs.preload import COMPILED
from fleet.numba_cache import modules_with_kernels
from scripts.repo_checks import ROOT

# Not compiled here, which would take minutes: only what is imported matters.
LATE = r"^ +from (\S+) import .*# noqa: PLC0415 - loads compiled code"
KERNELS = [*modules_with_kernels(), *COMPILED]
LOADED = "import sys, api.jobs.preload; print(*(name for name in sys.argv[1:] if name in sys.modules))"


def loaded(**environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *KERNELS],
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_kernels_are_loaded_before_the_first_job_only_where_they_are_compiled() -> None:
    assert loaded() == []
    assert loaded(FLEETWRIGHT_PRELOAD_KERNELS="1") == KERNELS


def test_every_import_of_compiled_code_within_a_job_is_loaded_before() -> None:
    late = {
        found
        for path in (ROOT / "api" / "jobs").glob("*.py")
        for found in re.findall(
            r"^ +from (\S+) import .*# noqa: PLC0415 - loads compiled code", path.read_text(), re.MULTILINE
        )
    }
    assert late == set(COMPILED)


@pytest.mark.parametrize("target", ["api", "full"])
def test_the_images_of_workers_load_them(target: str) -> None:
    text = (ROOT / "deploy" / "images" / "Dockerfile").read_text()
    stage = text.partition(f"\nFROM runtime AS {target}\n")[2].partition("\nFROM ")[0]
    assert "FLEETWRIGHT_PRELOAD_KERNELS=1" in stage
