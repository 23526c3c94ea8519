"""Solves a sweep: its job creates one job per point, waits for them without a process, and joins their results.

The job runs twice.  The first time it checks the grid and returns `Expanded`: in the transaction that ends the run, the
points are stored as jobs whose parent it is, and its state becomes `waiting`.  Once no point is left, any worker queues
it again, and the second run joins the points.  A point reads the request of its parent, so that a grid of
ten thousand points stores the request once; and its parent's catalogues, so that all points use the same.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from api.jobs.body import read_body
from api.jobs.catalogues import gpus_of, kept_texts, models_of, offers_of, plan_texts, stocks_of
from api.jobs.outcome import Expanded, JobFailure, Report, Solved, Task, cancelled, refuse
from api.schemas.sweeps import SweepRequest
from api.store import JobRecord, Transaction
from fleet.documents import read_stored
from planner import plan
from planner.sweep import (
    FailedPoint,
    Sweep,
    SweepPoint,
    count_points,
    grid_factors,
    grid_request,
    grid_requests,
    mark_front,
    point,
)
from planner.validation.slo_validation import replayed_requests

SWEEP_POINT: Final = "sweep point"  # the kind of the points' jobs
CHILDREN: Final = "children"  # the key of the points' results in the inputs of the second run
SWEEP: Final = "sweep"  # the key of the parent's request in the inputs of a point
POSITION: Final = "point"
MAX_REPLAYS: Final = 10  # of all points together, as a multiple of what one plan may replay


async def sweep_inputs(tx: Transaction, job: JobRecord, request: str) -> Mapping[str, Any]:
    """Read the catalogues; in the second run, those of the first and what the points have made."""
    if not (children := await tx.jobs.children(job.id)):
        return await plan_texts(tx, request)
    return {**kept_texts(await tx.jobs.output_of(job.id) or "{}"), CHILDREN: children}


async def point_inputs(tx: Transaction, job: JobRecord, _request: str) -> Mapping[str, Any]:
    parent = job.parent or ""
    request, kept = await tx.jobs.request_of(parent), await tx.jobs.output_of(parent)
    if request is None or kept is None:
        raise refuse("parent", f"the sweep {parent} has ended")
    return {**kept_texts(kept), SWEEP: request}


def expand(task: Task, report: Report) -> Expanded:
    """Check the grid and its size, and return the requests of its points."""
    report("checking the grid", None)
    request = read_body(SweepRequest, task.request)
    points, allowed = count_points(request.axes), task.limits.sweep_points
    if points > allowed:
        raise refuse("axes", f"come to {points:,} points, at most {allowed:,} here")
    replayed, allowed = points * replayed_requests(request.request), MAX_REPLAYS * task.limits.replayed_requests
    if replayed > allowed:
        raise refuse("axes", f"the points have {replayed:,.0f} requests to replay together, at most {allowed:,} here")
    grid_requests(request.request, offers_of(task.inputs), request.axes, gpus=gpus_of(task.inputs))
    return Expanded(
        kind=SWEEP_POINT,
        requests=tuple(json.dumps({POSITION: position}) for position in range(points)),
        kept=json.dumps(dict(task.inputs)),
    )


def solve_point(task: Task, report: Report) -> Solved:
    """Plan one point of the grid."""
    report("reading the request", None)
    sweep = read_body(SweepRequest, task.inputs[SWEEP])
    gpus, position = gpus_of(task.inputs), int(json.loads(task.request)[POSITION])
    factors, request, prices = grid_request(sweep.request, offers_of(task.inputs), sweep.axes, position, gpus=gpus)
    found = plan(
        request,
        gpus=gpus,
        models=models_of(task.inputs),
        prices=prices,
        stocks=stocks_of(task.inputs),
        now=task.now,
        clock_s=time.monotonic,
        report=report,
    )
    return Solved(output=point(factors, found).model_dump_json())


def join(request: SweepRequest, task: Task, report: Report) -> Sweep:
    """Join the points, with the reasons of those that failed."""
    report("joining the points", None)
    points, failed = [], []
    for factors, child in zip(grid_factors(request.axes), task.inputs[CHILDREN], strict=True):
        if child.output is not None:
            points.append(read_stored(SweepPoint, child.output))
        else:
            found = JobFailure.from_json(child.failure) if child.failure is not None else cancelled()
            failed.append(FailedPoint(factors=factors, reason=found.detail))
    return mark_front(request.axes, points, goal=request.request.policy.goal, failed=failed)
