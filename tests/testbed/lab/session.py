"""Runs an experiment: starts the network and the ranks, samples four times a second, injects faults, stops everything.

It writes the samples as a recording for `fleetwright faults replay`, and feeds them to a live detector.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import floor
from pathlib import Path
from typing import Any, Final

from deploy.telemetry.factory import Recording, recorder_of
from deploy.telemetry.peers import Peers
from deploy.telemetry.recorder import Recorder
from tests.testbed import launch
from tests.testbed.lab import job, leftovers, ranks
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Bench, Injection
from tests.testbed.lab.network import Network, running_network
from tests.testbed.lab.watching import Watch
from tests.testbed.lab.workload import Plan
from tests.testbed.waiting import wait_for

ROOT: Final = Path(__file__).resolve().parents[3]
BEFORE_S: Final = 1.5  # the recording begins this long before the first step
CONGESTION_CONTROL: Final = Path("/proc/sys/net/ipv4/tcp_congestion_control")
AHEAD: Final = 10  # of nice(2)
SPIN: Final = "while True: pass"


class SessionError(RuntimeError):
    """Carries the output of ranks that did not start."""


@dataclass(frozen=True, slots=True)
class Run:
    """Holds the results of an experiment."""

    truth: dict[str, Any]
    done_s: Mapping[Injection, float]  # the injections and their times after the start


def run_experiment(
    experiment: Experiment,
    *,
    folder: Path,
    watch: Watch | None = None,
    python: Path | None = None,
    watcher_url: str | None = None,
) -> Run:
    """Run the experiment and record it in `folder`; `python` has torch where the workload uses gloo.

    With `watcher_url` the ranks send to their node's recorder, and the recorders send to that monitor as well.
    """
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        notes = stack.enter_context(leftovers.folder())
        inboxes = [notes / f"inbox{rank}" for rank in range(experiment.workload.ranks)] if watcher_url else []
        network = stack.enter_context(running_network(nodes=experiment.workload.ranks, rate_mbit=experiment.rate_mbit))
        plan = _plan(experiment, network, folder, inboxes)
        pids = stack.enter_context(_running_ranks(plan, notes, python or Path(sys.executable)))
        stack.enter_context(busy(experiment.busy))
        bench = Bench(network, pids)
        stack.callback(bench.close)
        started_s = time.time() + BEFORE_S
        common = Recording(
            node=0,
            peers=Peers({network.address(node): node for node in range(network.nodes)}),
            period_s=experiment.period_s,
            probe_bytes=experiment.probe_bytes,
            probe_every_s=experiment.probe_every_s,
            folder=folder,
            run=experiment.run_entry(congestion_control=CONGESTION_CONTROL.read_text().strip()),
            monitor_url=watcher_url,
        )
        recorders = _recorders(common, network, pids, inboxes, started_s)
        for recorder in recorders:
            stack.callback(recorder.close)
        if watch is not None:
            watch.begin(folder=folder, started_s=started_s, job=experiment.job())
        _announce_start(notes, started_s)
        stack.enter_context(_ahead_of_the_ranks())
        done = _drive(experiment, bench, recorders, started_s, watch)
        truth = experiment.truth(started_s=started_s, done=done, loadavg=os.getloadavg())
    return Run(truth=truth, done_s={what: at_s - started_s for what, at_s in done.items()})


def _drive(
    experiment: Experiment, bench: Bench, recorders: Sequence[Recorder], started_s: float, watch: Watch | None
) -> dict[Injection, float]:
    """Sample and inject faults, each at its time."""
    done: dict[Injection, float] = {}
    waiting = sorted(experiment.injections, key=lambda what: what.at_s)
    period_s, tick_s = experiment.period_s, min(recorder.tick_s for recorder in recorders)
    next_s, ends_s, before = _next_sample_s(tick_s), started_s + experiment.workload.duration_s, 0
    while time.time() < ends_s:
        if waiting and time.time() >= started_s + waiting[0].at_s:
            bench.inject(waiting[0])
            done[waiting.pop(0)] = time.time()
        if time.time() >= next_s:
            for recorder in recorders:
                recorder.poll()
            period = floor((next_s + tick_s / 2) / period_s)
            if watch is not None and period != before:
                watch.turn()
            before = period
            next_s = _next_sample_s(tick_s)
        due_s = min(next_s, started_s + waiting[0].at_s) if waiting else next_s
        time.sleep(max(0.0, due_s - time.time()))
    return done


def _next_sample_s(period_s: float) -> float:
    """Return the time to the next whole period of the wall clock, at which all nodes sample, so that pairs compare."""
    return (floor(time.time() / period_s) + 1) * period_s


def _recorders(
    common: Recording, network: Network, pids: Sequence[int], inboxes: Sequence[Path], started_s: float
) -> list[Recorder]:
    """Create one recorder per node, which samples its namespace from outside."""
    return [
        recorder_of(
            replace(
                common,
                node=node,
                namespace=network.path(node),
                pid_of={node: pids[node]},
                inbox=inboxes[node] if inboxes else None,
            ),
            started_s=started_s,
        )
        for node in range(network.nodes)
    ]


def _plan(experiment: Experiment, network: Network, records: Path, inboxes: Sequence[Path]) -> Plan:
    nodes = range(network.nodes)
    return Plan(
        workload=experiment.workload,
        addresses=tuple(network.address(node) for node in nodes),
        namespaces=tuple(str(network.path(node)) for node in nodes),
        records=str(records),
        outlets=tuple(f"unix:{path}" for path in inboxes),
    )


@contextmanager
def _running_ranks(plan: Plan, notes: Path, python: Path) -> Iterator[list[int]]:
    """Yield all ranks, connected and ready."""
    plan.write(notes)
    log = notes / "ranks.log"
    argv = [*_dying_with_us(), str(python), "-m", "tests.testbed.lab.ranks", str(notes)]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, cwd=ROOT, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        _wait_until_ready(process, notes, plan.workload.ranks, log)
        yield json.loads((notes / ranks.PIDS).read_text())
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", notes: Path, count: int, log: Path) -> None:
    def ready() -> bool:
        if process.poll() is not None:
            raise SessionError(log.read_text()[-4000:])
        return all((notes / f"{job.READY}{rank}").exists() for rank in range(count))

    try:
        wait_for(ready, what="ready ranks", timeout_s=180.0)
    except TimeoutError as error:
        raise SessionError(f"{error}\n{log.read_text()[-4000:]}") from None


def _announce_start(notes: Path, started_s: float) -> None:
    partial = notes / f"{job.GO}.partial"
    partial.write_text(repr(started_s))
    partial.rename(notes / job.GO)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Load the machine with busy loops."""
    argv = [*_dying_with_us(), sys.executable, "-I", "-S", "-c", SPIN]
    spinning = [subprocess.Popen(argv) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@contextmanager
def _ahead_of_the_ranks() -> Iterator[None]:
    """Raise the priority: the recorders of all nodes share this process, and no recorder may make the others late."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, before - AHEAD)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _dying_with_us() -> list[str]:
    """Return the command prefix that has the kernel kill a command when this process ends."""
    return [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
