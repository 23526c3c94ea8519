"""Tests that a process reports why it failed, ends with all its children, and never outlives the test run."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed import launch
from tests.testbed.proc import is_running
from tests.testbed.processes import LOOPBACK, PORTS, Process, ProcessError, answers_ok, free_ports
from tests.testbed.waiting import wait_for


def test_a_server_is_ready_once_it_responds_and_its_port_is_freed_afterwards(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    serve = [sys.executable, "-m", "http.server", "--bind", LOOPBACK, str(port)]
    url = f"http://{LOOPBACK}:{port}/"
    assert not answers_ok(url)

    with Process.start(serve, name="web", log_dir=tmp_path / "logs", cwd=tmp_path) as web:
        web.wait_ready(lambda: answers_ok(url))
        assert web.running()

    assert not web.running()
    assert not answers_ok(url)
    assert '"GET / HTTP/1.1" 200' in web.log_path.read_text()


def test_a_process_that_ends_before_it_is_ready_is_reported_at_once_with_its_log(tmp_path: Path) -> None:
    with (
        Process.start(["sh", "-c", "echo cannot bind; exit 3"], name="broken", log_dir=tmp_path) as broken,
        pytest.raises(ProcessError, match=r"broken ended with status 3\ncannot bind"),
    ):
        broken.wait_ready(lambda: False)


def test_a_process_that_never_becomes_ready_is_reported_with_its_log(tmp_path: Path) -> None:
    with Process.start(["sh", "-c", "echo thinking; exec sleep 1000"], name="slow", log_dir=tmp_path) as slow:
        wait_for(slow.log_tail, what="first output")
        with pytest.raises(ProcessError, match=r"no ready slow within 0.1 s; last observed: False\nthinking"):
            slow.wait_ready(lambda: False, timeout_s=0.1)


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with (
        Process.start(["/no/such/program"], name="missing", log_dir=tmp_path) as missing,
        pytest.raises(ProcessError, match=r"/no/such/program: No such file or directory"),
    ):
        missing.wait_ready(lambda: False)


def test_stop_sends_sigterm_first_and_is_idempotent(tmp_path: Path) -> None:
    polite = Process.start(
        ["sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done"],
        name="polite",
        log_dir=tmp_path,
    )
    wait_for(polite.log_tail, what="first output")

    assert polite.stop(grace_s=60.0) == 7
    assert polite.stop() == 7
    assert polite.log_tail(1) == "bye"


def test_a_process_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = Process.start(
        ["sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait"], name="stubborn", log_dir=tmp_path
    )
    child_pid = int(wait_for(stubborn.log_tail, what="the pid of its child"))

    assert stubborn.stop(grace_s=0.05) == -signal.SIGKILL
    wait_for(lambda: not is_running(child_pid), what="end of its child")


def test_no_process_outlives_a_killed_test_run(tmp_path: Path) -> None:
    start = (
        "from pathlib import Path; from tests.testbed.processes import Process\n"
        f"process = Process.start(['sleep', '1000'], name='orphan', log_dir=Path({str(tmp_path)!r}))\n"
        "print(process.pid, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert is_running(pid)
        run.kill()

    wait_for(lambda: not is_running(pid), what="end of the orphan")


def test_a_process_does_not_start_after_its_parent_ended(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    ended = subprocess.run(
        [sys.executable, launch.__file__, str(os.getppid()), "touch", str(marker)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == f"process {os.getppid()} is gone\n"
    assert not marker.exists()


def test_free_ports_are_distinct_and_below_the_ephemeral_range() -> None:
    outgoing_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert PORTS.start <= min(ports) <= max(ports) < outgoing_from


def test_a_port_in_use_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_ports(2)
    drawn = iter([first, second])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(drawn) - PORTS.start)
    with socket.create_server((LOOPBACK, first)):
        assert free_ports(1) == [second]
