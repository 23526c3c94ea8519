"""`fleetwright controller plan` with a missing kubeconfig."""

from pathlib import Path

import pytest

from tests.testbed.cli import Cli

pytest.importorskip("kubernetes.aio", exc_type=ImportError)


def test_a_missing_kubeconfig_is_reported(cli: Cli, tmp_path: Path) -> None:
    done = cli("controller", "plan", "--kubeconfig", tmp_path / "none")
    assert done.code == 2
    (line,) = done.refused
    assert line.startswith(f"kubeconfig {tmp_path / 'none'}: ")
