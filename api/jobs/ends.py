"""Stores the end of a job's run: its result, its failure, or the jobs that it has created."""

from dataclasses import replace
from datetime import datetime

from api.jobs.kinds import kind_named
from api.jobs.outcome import CANCELLED, Expanded, Finished, JobFailure, Solved, cancelled
from api.schemas.jobs import JobState
from api.store import JobRecord, Store, Transaction, new_id


class FencedError(Exception):
    """Another worker has taken over the job."""


async def store_end(store: Store, job: JobRecord, finished: Finished, *, worker: str, now: datetime) -> None:
    """Store the end in one transaction.  FencedError when the worker no longer holds the job."""
    outcome = finished.outcome
    kind = kind_named(job.kind) if isinstance(outcome, Solved) else None
    state, failure, output = JobState.SUCCEEDED, None, None
    if isinstance(outcome, Solved) and kind is not None and kind.store is None:
        output = outcome.output
    async with store.transaction() as tx:
        if isinstance(outcome, Expanded):
            if await _expanded(tx, job, outcome, worker=worker, now=now, cpu_s=finished.cpu_s):
                return
            outcome = cancelled()  # or held by another worker, which the end will find
        if isinstance(outcome, JobFailure):
            failure = outcome.to_json()
            state = JobState.CANCELLED if outcome.kind == CANCELLED else JobState.FAILED
        held = await tx.jobs.finish(
            job.id, worker=worker, state=state, at=now, output=output, failure=failure, cpu_s=finished.cpu_s
        )
        if not held:
            raise FencedError
        if isinstance(outcome, Solved) and kind is not None and kind.store is not None:
            await kind.store(tx, job, outcome, now)


async def _expanded(
    tx: Transaction, job: JobRecord, outcome: Expanded, *, worker: str, now: datetime, cpu_s: float
) -> bool:
    children, last = list[tuple[JobRecord, str]](), await tx.jobs.newest_id()
    for request in outcome.requests:
        last = new_id(now, after=last)
        child = replace(
            job,
            id=last,
            kind=outcome.kind,
            state=JobState.QUEUED.value,
            created_at=now,
            key=None,
            fingerprint=None,
            naming=None,
            parent=job.id,
            attempts=0,
            worker=None,
            started_at=None,
            phase=None,
            share=None,
        )
        children.append((child, request))
    return await tx.jobs.expand(job.id, worker=worker, kept=outcome.kept, cpu_s=cpu_s, children=children)
