"""`fleetwright controller plan` with a way to Kubernetes that leads nowhere."""

from pathlib import Path

import pytest

from tests.api.cli.conftest import Cli

pytest.importorskip("kubernetes.aio", exc_type=ImportError)


def test_a_kubeconfig_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    done = cli("controller", "plan", "--kubeconfig", tmp_path / "none")
    assert done.code == 2
    (line,) = done.refused
    assert line.startswith(f"kubeconfig {tmp_path / 'none'}: ")
