"""Tests that a guarded program's processes, of any group or session, end with it and with the tests."""

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.testbed.proc import running_with_variable
from tests.testbed.processes import Process
from tests.testbed.waiting import wait_for

MARK = "FLEETWRIGHT_TEST_MARK"

# Leaves an orphan that leads its own session and ignores SIGTERM.
ESCAPE = """
import os, signal, sys
from pathlib import Path

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(sys.argv[1], "escaped").touch()
        signal.pause()
    os._exit(0)
os.wait()
while not Path(sys.argv[1], "escaped").exists():
    pass
"""
STAY = ESCAPE + "signal.pause()"
END = ESCAPE + "sys.exit(3)"
DIE = ESCAPE + "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Set a value in the environment of every process that this test starts."""
    value = secrets.token_hex()
    monkeypatch.setenv(MARK, value)
    return value


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


def guarded(program: str, scratch: Path) -> list[str]:
    """Return the command line of a guarded Python program."""
    return [sys.executable, "-m", "tests.testbed.guardian", str(scratch), sys.executable, "-c", program, str(scratch)]


@pytest.fixture
def guardian(mark: str, scratch: Path, tmp_path: Path) -> Iterator[Process]:
    """Run a guardian whose program keeps running, after another process left its process group."""
    with Process.start(guarded(STAY, scratch), name="guarded", log_dir=tmp_path) as process:
        process.wait_ready((scratch / "escaped").exists)
        assert len(running_with_variable(MARK, mark)) == 3  # guardian, program and the escaped process
        yield process


@pytest.mark.parametrize(("program", "status"), [(END, 3), (DIE, 128 + signal.SIGKILL)], ids=["ends", "is killed"])
def test_the_end_of_a_program_removes_its_processes_and_scratch_directory(
    program: str, status: int, mark: str, scratch: Path
) -> None:
    done = subprocess.run(guarded(program, scratch), check=False, timeout=60)
    assert done.returncode == status
    assert running_with_variable(MARK, mark) == []
    assert not scratch.exists()


def test_a_terminated_guardian_leaves_no_process_or_file(guardian: Process, mark: str, scratch: Path) -> None:
    assert guardian.stop(grace_s=60) == 128 + signal.SIGTERM
    assert running_with_variable(MARK, mark) == []
    assert not scratch.exists()


def test_a_killed_test_run_leaves_no_process_or_file(mark: str, scratch: Path, tmp_path: Path) -> None:
    test_run = dedent(
        f"""
        import os, signal
        from pathlib import Path
        from tests.testbed.processes import Process
        from tests.testbed.waiting import wait_for

        Process.start({guarded(STAY, scratch)!r}, name="guarded", log_dir=Path({str(tmp_path)!r}))
        wait_for(Path({str(scratch)!r}, "escaped").exists, what="escape")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", test_run], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    wait_for(lambda: running_with_variable(MARK, mark), lambda left: not left, what="end of every process")
    assert not scratch.exists()


def test_a_missing_program_is_named_and_the_scratch_directory_removed(scratch: Path) -> None:
    argv = [sys.executable, "-m", "tests.testbed.guardian", str(scratch), "/no/such/program"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "No such file or directory: '/no/such/program'" in done.stderr
    assert not scratch.exists()
