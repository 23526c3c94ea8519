"""Executes another program that the kernel kills when its parent ends, however it ends.

Run it as a script, `launch.py PARENT_PID PROGRAM [ARGUMENT...]`.  The kernel keeps the setting (`prctl(2)`,
`PR_SET_PDEATHSIG`) across the exec.  A `preexec_fn` could do the same, but is unsafe in a process with threads, and
Python warns about it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(parent_pid: int, argv: list[str]) -> str:
    """Exec `argv`; return the reason only if that fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        return f"prctl: {os.strerror(ctypes.get_errno())}"
    if os.getppid() != parent_pid:  # the parent ended before prctl took effect
        return f"process {parent_pid} is gone"
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted between the tests and what they supervise
    except OSError as error:
        return f"{argv[0]}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
