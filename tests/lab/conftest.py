"""Provides a lab for the tests of this folder, or skips them with the reason.

FLEETWRIGHT_LAB_PYTHON names an interpreter that has torch: the ranks then use PyTorch over gloo.  Without it they use
the lab's own library over TCP.
"""

import os
from pathlib import Path

import pytest

from tests.testbed.lab import network
from tests.testbed.lab.workload import LibraryName
from tests.testbed.requirements import UnavailableError, require_or_skip

PYTHON = "FLEETWRIGHT_LAB_PYTHON"


@pytest.fixture(scope="session", autouse=True)
def lab_allowed() -> None:
    """Skip all tests where namespaces or traffic control are not allowed."""
    try:
        network.check_allowed()
    except UnavailableError as unavailable:
        require_or_skip("lab", f"ranks in network namespaces: {unavailable}")


@pytest.fixture(scope="session")
def torch_python() -> Path | None:
    """Return the interpreter that has torch; None where none is configured."""
    named = os.environ.get(PYTHON)
    return Path(named) if named else None


@pytest.fixture(scope="session")
def library(torch_python: Path | None) -> LibraryName:
    return "gloo" if torch_python is not None else "own"
