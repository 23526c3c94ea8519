"""Jobs: work that a process of `fleetwright worker` does for a request, with its state and progress."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from api.schemas.labels import Labels, ResultName
from api.schemas.problems import ProblemDetails
from fleet.documents import Frozen


class Lane(StrEnum):
    """A queue with workers of its own, so that no lane waits for another."""

    SAFETY = "safety"  # evidence of faults
    READS = "reads"  # exports, comparisons, replays of bundles, checks of what is stored
    WORK = "work"  # plans, their explanations and replays, placements and simulations


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"  # for the jobs that it has created
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in {JobState.QUEUED, JobState.RUNNING, JobState.WAITING}


FINAL_STATES = frozenset(state for state in JobState if state.is_final)


class Job(Frozen):
    """One job.  A job that creates a stored result has the id of the result."""

    id: str
    kind: str
    lane: Lane
    state: JobState
    project: str
    created_at: datetime
    created_by: str
    parent: str | None = Field(default=None, description="The job that created this one, such as a sweep.")
    started_at: datetime | None = None
    finished_at: datetime | None = None
    deadline_s: float = Field(description="How long the job may run; a worker ends it then.")
    attempts: int = Field(description="How often a worker has started it; a lost worker's job starts again.")
    position: int | None = Field(
        default=None, description="Jobs of the same lane that were accepted before, while queued."
    )
    phase: str | None = Field(default=None, description="What the job does now.")
    share: float | None = Field(default=None, ge=0, le=1, description="Finished share of the phase, where it is known.")
    cpu_s: float | None = Field(default=None, description="Processor time, once it has finished.")
    subject: str | None = Field(default=None, description="What the job reads, as a path below `/v1/`.")
    name: ResultName | None = Field(default=None, description="Of the result.")
    labels: Labels = Field(default_factory=dict, description="Of the result.")
    result: str | None = Field(default=None, description="Path of what the job has made.")
    problem: ProblemDetails | None = Field(default=None, description="Why it failed.")
