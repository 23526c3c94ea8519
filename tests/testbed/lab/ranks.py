"""Starts the ranks, each in its namespace: one process imports the library once and forks them.

Run it as a module, `python -m tests.testbed.lab.ranks FOLDER`, with an interpreter that has torch if the library is
gloo.  The kernel kills the ranks when that process ends.
"""

import ctypes
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Final

CLONE_NEWNET: Final = 0x40000000  # linux/sched.h
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
PIDS: Final = "pids.json"


def main(folder: Path) -> int:
    """Fork the ranks and wait for all of them."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "e0")
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    from tests.testbed.lab.job import run_rank  # noqa: PLC0415 - imported once, before the forks
    from tests.testbed.lab.workload import Plan  # noqa: PLC0415

    plan = Plan.read(folder)
    if plan.workload.library == "gloo":
        import torch.distributed  # type: ignore[import-not-found, unused-ignore]  # noqa: F401, PLC0415
    pids = []
    for rank, namespace in enumerate(plan.namespaces):
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with(parent)
            try:
                enter(Path(namespace))
                run_rank(rank, folder=folder)
            except BaseException:  # noqa: BLE001 - a forked child must end here, and say why
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        pids.append(pid)
    partial = folder / f"{PIDS}.partial"
    partial.write_text(json.dumps(pids))
    partial.rename(folder / PIDS)
    for pid in pids:
        os.waitpid(pid, 0)
    return 0


def enter(namespace: Path) -> None:
    """Move this thread, and everything it opens from now on, into a network namespace."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked("setns", descriptor, CLONE_NEWNET)
    finally:
        os.close(descriptor)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the parent ends, however it ends."""
    _checked("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _checked(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
