"""Runs one program; when it or the tests end, kills all its descendants and removes its scratch directory.

Run it as a module, `python -m tests.testbed.guardian SCRATCH PROGRAM [ARGUMENT...]`.  Ray needs it: its workers lead
their own process groups and its agents outlive their raylet, so neither a signal to one group nor the kernel's
parent-death signal reaches them all.  The guardian is a child subreaper (`prctl(2)`, `PR_SET_CHILD_SUBREAPER`): the
kernel reparents every orphan among its descendants to it, so that a walk down from it misses none.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.testbed.launch import PR_SET_PDEATHSIG
from tests.testbed.proc import descendants

PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
SWEEP_INTERVAL_S: Final = 0.02


def end_descendants() -> None:
    """Kill descendants until none is left: a process forked during one pass appears in the next."""
    while found := descendants(os.getpid()):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(SWEEP_INTERVAL_S)


def main(scratch: Path, argv: list[str]) -> int:
    """Return the program's exit status, or 128 + SIGTERM where the guardian was terminated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    libc = ctypes.CDLL(None, use_errno=True)
    # SIGTERM replaces the SIGKILL of launch.py at the end of the test run, because the guardian must clean up first.
    for option, value in ((PR_SET_PDEATHSIG, signal.SIGTERM), (PR_SET_CHILD_SUBREAPER, 1)):
        if libc.prctl(option, int(value), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option})")
    try:
        program = subprocess.Popen(argv)
        return _reap_until(program.pid)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants()
        shutil.rmtree(scratch, ignore_errors=True)


def _reap_until(pid: int) -> int:
    """Reap adopted orphans until `pid` ends; return its exit status as a shell would."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
