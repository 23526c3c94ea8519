"""Runs each job in a fresh process, forked from one that has imported the solvers, and ends it at its limits.

A fork takes some milliseconds, less than a small plan, and gives all memory back at its end.  (A pool of kept processes
would save them, but a kept process neither returns memory nor shows which job needs it.)  The watch compares resident
memory without mapped files, which includes some 100 MiB of imported solvers.
"""

import asyncio
import ctypes
import multiprocessing
import multiprocessing.util
import os
import pickle
import resource
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from api.jobs.executor import Limits
from api.jobs.outcome import (
    Expanded,
    Finished,
    JobFailure,
    Report,
    Solved,
    Task,
    defect,
    died,
    failure_of,
    out_of_memory,
    past_deadline,
)
from api.schemas.jobs import Lane

PRELOADED: Final = ["api.jobs.preload"]
WATCH_S: Final = 0.1
REPORT_S: Final = 0.25  # at most so often
END_S: Final = 2.0  # for a process that has sent its outcome
PR_SET_PDEATHSIG: Final = 1
THREADED: Final = ("OMP", "OPENBLAS", "MKL", "NUMBA")
# At 19 plans starve beside other programs of a busy machine.
NICENESS: Final = {Lane.SAFETY: 0, Lane.READS: 5, Lane.WORK: 10}
MIB: Final = 1024**2
Message = tuple[str, float | None] | Finished


class ProcessExecutor:
    """Runs jobs on this machine.  Cancelling `run` ends the process."""

    def __init__(self) -> None:
        for library in THREADED:  # before the first fork: a slot is a core, and the solvers use one thread too
            os.environ[f"{library}_NUM_THREADS"] = "1"
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    async def warm_up(self) -> None:
        """Import the solvers, so that the first job does not wait for it."""
        await asyncio.to_thread(self._start, _nothing, ())

    def takes(self, _lane: Lane) -> bool:
        return True

    async def run(self, task: Task, *, limits: Limits, report: Report) -> Finished:
        """Run a job to its end, or to its limits."""
        async with self._process(task, limits) as (process, messages):
            try:
                async with asyncio.timeout(limits.deadline_s):
                    return await self._finished(process, messages, limits=limits, report=report)
            except TimeoutError:
                return Finished(past_deadline(limits.deadline_s), cpu_s=_cpu_s(process.pid))

    async def _finished(
        self, process: ForkServerProcess, messages: Connection, *, limits: Limits, report: Report
    ) -> Finished:
        while True:
            if await _is_readable(messages, timeout_s=WATCH_S):
                try:
                    message: Message = pickle.loads(await asyncio.to_thread(messages.recv_bytes))  # noqa: S301 - of our own process
                except EOFError:
                    await asyncio.to_thread(process.join, END_S)
                    return Finished(died(_reason(process.exitcode)))
                if isinstance(message, Finished):
                    return message
                report(*message)
            elif _resident_mib(process.pid) > limits.memory_mib:
                return Finished(out_of_memory(limits.memory_mib), cpu_s=_cpu_s(process.pid))

    @asynccontextmanager
    async def _process(self, task: Task, limits: Limits) -> AsyncIterator[tuple[ForkServerProcess, Connection]]:
        ours, theirs = self._context.Pipe(duplex=False)
        try:
            process = await asyncio.to_thread(self._start, work_in_process, (theirs, task, limits))
        finally:
            theirs.close()
        try:
            yield process, ours
        finally:
            process.kill()
            ours.close()
            await asyncio.to_thread(process.join)
            process.close()

    def _start(self, target: Any, args: tuple[Any, ...]) -> ForkServerProcess:
        process = self._context.Process(target=target, args=args, daemon=True)
        process.start()
        return process


def work_in_process(messages: Connection, task: Task, limits: Limits) -> None:
    """Do a job in this process, and send its progress and its end."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker decides
    lower_priority(NICENESS[limits.lane])
    # A second line of defence, for growth between two checks of the watch.
    if (now_mib := _data_mib()) is not None:
        ceiling = (now_mib + 2 * limits.memory_mib) * MIB
        resource.setrlimit(resource.RLIMIT_DATA, (ceiling, ceiling))
    last_s = -REPORT_S

    def report(phase: str, share: float | None) -> None:
        nonlocal last_s
        if share is None or time.monotonic() - last_s >= REPORT_S:
            last_s = time.monotonic()
            messages.send_bytes(pickle.dumps((phase, share)))

    finished = do(task, report, memory_mib=limits.memory_mib)
    messages.send_bytes(pickle.dumps(finished))
    messages.close()


def do(task: Task, report: Report, *, memory_mib: int) -> Finished:
    """Do a job.  Every error of the request becomes a failure; any other is a defect, with its traceback."""
    from api.jobs.kinds import kind_named  # noqa: PLC0415 - the solvers, which a worker itself does not need

    begun_s = time.process_time()
    outcome: Solved | Expanded | JobFailure
    trace = None
    try:
        outcome = kind_named(task.kind).run(task, report)
    except MemoryError:
        outcome = out_of_memory(memory_mib)
    except Exception as error:  # noqa: BLE001 - a job must end with an outcome
        if (failure := failure_of(error)) is not None:
            outcome = failure
        else:
            outcome, trace = defect(), "".join(traceback.format_exception(error))
    return Finished(outcome, cpu_s=time.process_time() - begun_s, defect=trace)


async def _is_readable(messages: Connection, *, timeout_s: float) -> bool:
    """Wait for a message; False after `timeout_s` without one."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(messages.fileno(), ready.set)
    try:
        async with asyncio.timeout(timeout_s):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(messages.fileno())
    return True


def _nothing() -> None:
    """Let the first fork happen."""


def _end_with_parent() -> None:
    """End this process when the process it was forked from ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def lower_priority(niceness: int) -> None:
    """Run after the service.  Linux may group processes by session, and niceness then counts only within a session."""
    os.nice(niceness)
    with suppress(OSError):
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(niceness))


def _resident_mib(pid: int | None) -> float:
    """Return the resident memory of a process without mapped files; 0 once it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - read ten times a second
            pages = file.read().split()
    except OSError:
        return 0.0
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize() / MIB


def _data_mib() -> int | None:
    """Return the writable memory of this process; None where the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[5]) * resource.getpagesize() // MIB
    except OSError:
        return None


def _cpu_s(pid: int | None) -> float:
    """Return the processor time of a process that is being ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _reason(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return signal.Signals(-exit_code).name
    return f"exit code {exit_code}"
