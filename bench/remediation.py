"""Remediation of a frozen worker on a real Ray cluster, compared with Ray alone; and a healthy busy cluster.

A run of Ray Train v2 with two workers, a node each and spares; a step takes 50 ms, every tenth is a checkpoint.  Time
counts from the SIGSTOP until both ranks have made a step on other nodes.

    python -m bench remediation     FLEETWRIGHT_HEALING_REPEATS=10, FLEETWRIGHT_HEALING_MINUTES=30 (healthy, under load)
"""

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from api.schemas.remediation import CaseSpec, RemediationStage
from bench.harness import Row, child
from faults.quarantine import DecisionKind, DisruptionBudget, PolicyMode, QuarantineRules
from tests.testbed.ray_cluster import RAY_SETTINGS, check_machine
from tests.testbed.remediated_run import RemediatedRun, remediated_run
from tests.testbed.waiting import wait_for

REPEATS, MINUTES = "FLEETWRIGHT_HEALING_REPEATS", "FLEETWRIGHT_HEALING_MINUTES"
ALONE_S: Final = 60.0
WORKERS: Final = 2
MAX_AT_ONCE: Final = 8  # repeats on one cluster, each of which costs it a node
# Without the guardrails of the fleet, because the nodes are frozen one after the other.
ANY: Final = DisruptionBudget(share=1.0, count=1000)
RULES: Final = QuarantineRules(mode=PolicyMode.APPLY, pool=ANY, domain=ANY, rate_count=1000, breaker_nodes=1000)


def run() -> list[Row]:
    check_machine()
    os.environ.update(RAY_SETTINGS)  # of drivers too
    left, minutes = int(os.environ.get(REPEATS, "10")), float(os.environ.get(MINUTES, "30"))
    rows: list[Row] = []
    recoveries: list[dict[str, float]] = []
    while left > 0 or not rows:
        batch = min(left, MAX_AT_ONCE)
        with (
            tempfile.TemporaryDirectory() as folder,
            remediated_run(Path(folder), nodes=WORKERS + max(1, batch), workers=WORKERS, rules=RULES) as running,
        ):
            if not rows:
                rows = [_alone(running), _healthy(running, minutes)]
            recoveries += _repeats(running, batch)
        left -= max(1, batch)
    return [*rows, *_summary(recoveries)]


def _alone(running: RemediatedRun) -> Row:
    lives, victim = running.lives(), _victim(running)
    os.kill(victim, signal.SIGSTOP)
    time.sleep(ALONE_S)
    noticed = running.lives() != lives
    os.kill(victim, signal.SIGCONT)
    return {"case": f"Ray alone, frozen for {ALONE_S:g} s", "runs": 1, "noticed": int(noticed)}


def _healthy(running: RemediatedRun, minutes: float) -> Row:
    lives = running.lives()
    busy = 2 * (os.cpu_count() or 1)
    with running.controller("--act") as controller, ExitStack() as stack:
        for _ in range(busy):
            stack.enter_context(child(_spin, method="fork"))
        running.wait_watched(controller)
        time.sleep(60.0 * minutes)
        load = os.getloadavg()[0]
    decisions = [each for each in running.client.get_quarantine().decisions if each.kind is DecisionKind.QUARANTINE]
    return {
        "case": f"healthy, {busy} busy processes beside",
        "runs": 1,
        "minutes": minutes,
        "load": load,
        "isolations": len(decisions),
        "restarts": int(running.lives() != lives),
    }


def _repeats(running: RemediatedRun, repeats: int) -> list[dict[str, float]]:
    found = []
    with running.controller("--act") as controller:
        for number in range(1, repeats + 1):
            running.wait_watched(controller, attempt=number)
            found.append(_remediated(running))
    return found


def _remediated(running: RemediatedRun) -> dict[str, float]:
    before, known = running.lives(), {each.id for each in running.cases()}
    victim, frozen_at = _victim(running), time.time()
    os.kill(victim, signal.SIGSTOP)
    after = wait_for(
        lambda: running.lives()[len(before) :], lambda lives: len(lives) >= WORKERS, what="steps elsewhere"
    )

    def replaced() -> list[CaseSpec]:
        new = [each.case for each in running.cases() if each.id not in known]
        return [case for case in new if case.stage is RemediationStage.REPLACED]

    (case,) = wait_for(replaced, what="case")
    right = case.node == next(life["node_id"] for life in before if life["pid"] == victim)
    ended = next(each.at for each in case.actions if each.action == "end-workers")
    return {
        "decided_s": case.opened_at.timestamp() - frozen_at,
        "ended_s": ended.timestamp() - frozen_at,
        "stepped_s": max(life["at"] for life in after) - frozen_at,
        "lost_steps": float(max(0, (case.runs[0].checkpoint_step or 0) + 1 - after[0]["first_step"])),
        "wrong": float(not right),
    }


def _summary(recoveries: Sequence[dict[str, float]]) -> Iterator[Row]:
    if not recoveries:
        return
    for name, what in (("decided_s", "isolated"), ("ended_s", "worker ended"), ("stepped_s", "first step on a spare")):
        took = np.array([each[name] for each in recoveries])
        row = {"case": f"frozen: {what}", "runs": len(took), "p50_s": float(np.median(took))}
        yield row | {"p95_s": float(np.quantile(took, 0.95)), "max_s": float(took.max())}
    yield {
        "case": "frozen: wrong node, or begun before the checkpoint",
        "runs": len(recoveries),
        "wrong": sum(each["wrong"] for each in recoveries) + sum(each["lost_steps"] > 0 for each in recoveries),
    }


def _victim(running: RemediatedRun) -> int:
    pid: int = [life["pid"] for life in running.lives() if life["rank"] == 1][-1]
    return pid


def _spin() -> None:
    while True:
        sum(range(10_000))
