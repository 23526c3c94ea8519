"""Tests that the control plane and the programs on it use only loopback and end with the tests."""

import os
import secrets
import signal
import sys
from pathlib import Path

import pytest

from tests.testbed.nested import run_pytest
from tests.testbed.proc import descendants, is_running, listening_on, running_with_variable
from tests.testbed.processes import Process
from tests.testbed.soak import long_form_only
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, long_form_only]

PLUGINS = ("requirements", "binaries", "kubernetes", "kuberay", "kueue")
MARK = "FLEETWRIGHT_NESTED_RUN"
PROGRAMS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "ray-operator", "kueue"}


# The outer test requests the same fixtures, so that a machine without them skips the test.
@pytest.mark.usefixtures("kube_api", "kuberay", "kueue")
def test_the_control_plane_listens_on_loopback_only_and_stops_when_the_run_is_killed(tmp_path: Path) -> None:
    up = tmp_path / "up"
    path = tmp_path / "test_nested.py"
    path.write_text(
        "import pathlib, signal\n"
        f"def test_it(kube_api, kuberay, kueue): pathlib.Path({str(up)!r}).touch(); signal.pause()\n"
    )
    plugins = [argument for name in PLUGINS for argument in ("-p", f"tests.testbed.{name}")]
    argv: list[str | Path] = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugins, path]
    with Process.start(argv, name="nested", log_dir=tmp_path, cwd=tmp_path) as run:
        run.wait_ready(up.exists)
        started = descendants(run.pid)
        names = {Path(f"/proc/{pid}/exe").readlink().name for pid in started}
        addresses = listening_on(started)

        os.kill(run.pid, signal.SIGKILL)
        wait_for(
            lambda: [pid for pid in started if is_running(pid)], lambda left: not left, what="end of all processes"
        )

    assert names == PROGRAMS
    assert addresses
    assert all(address.is_loopback for address in addresses)


@pytest.mark.usefixtures("kube_api")
def test_no_process_is_left_after_a_failed_test(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    source = f"""
        from tests.testbed.proc import running_with_variable

        def test_it(kube_api):
            assert len(running_with_variable({MARK!r}, {mark!r})) < 6, "pytest and the five parts"
    """

    result = run_pytest(
        source, folder=tmp_path, plugins=[f"tests.testbed.{name}" for name in PLUGINS], environment={MARK: mark}
    )

    assert "pytest and the five parts" in result.stdout
    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert not running_with_variable(MARK, mark)
