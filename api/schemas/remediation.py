"""Healing cases on the wire: one per isolation of a node, from the drain to its release, with every act on record."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, StringConstraints

from api.schemas.faults import NodeName
from api.schemas.names import Text
from fleet.documents import Frozen

MAX_ACTS: Final = 200  # the oldest go first, hooks never
MAX_RUNS: Final = 64
MAX_RAY_NODES: Final = 100

# Free text for people, which may quote a cluster's own messages.
Note = Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")]
RayId = Annotated[str, StringConstraints(min_length=1, max_length=160, pattern=r"^[A-Za-z0-9._:-]+$")]
Step = Annotated[int, Field(ge=0, le=2**53)]
Attempt = Annotated[int, Field(ge=1, le=1_000_000_000)]


class CasePhase(StrEnum):
    """How far a case is.  docs/healing.md"""

    WANTED = "wanted"  # the healer only looks: what would be done stands in the message
    DRAINING = "draining"
    EVACUATING = "evacuating"  # healthy ranks are given time for a checkpoint
    MIGRATING = "migrating"  # workers on the node are ended
    RESTARTING = "restarting"  # the runs have yet to step elsewhere
    REPLACED = "replaced"  # they do; the node is out
    PROBING = "probing"
    RELEASED = "released"
    KEPT = "kept"  # out until a person says otherwise


class RunCase(Frozen):
    """A training run that had workers on the node."""

    run: Text
    attempt: Attempt = Field(description="Of the worker group that had to go.")
    workers: Annotated[int, Field(ge=0, le=1_000_000)] = Field(description="That it had on the node.")
    checkpoint_step: Step | None = Field(default=None, description="Newest checkpoint when the case began.")
    resumed_attempt: Attempt | None = None
    resumed_step: Step | None = Field(default=None, description="The first step reported elsewhere.")
    over: bool = Field(default=False, description="The run has ended.")

    @property
    def settled(self) -> bool:
        """Whether nothing more is waited for."""
        return self.over or self.resumed_step is not None


class CaseAct(Frozen):
    """Something that was done, and what came of it."""

    at: AwareDatetime
    act: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,31}$")]
    detail: Note = ""


class CaseSpec(Frozen):
    """A case as the healer keeps it."""

    node: NodeName
    accusation: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        default=None, description="Id of the verdict that the node went for; null: an operator's word."
    )
    patient: bool = Field(default=False, description="Its ranks can still checkpoint: the fault is slow, not a hang.")
    phase: CasePhase
    phase_since: AwareDatetime
    opened_at: AwareDatetime
    ray_nodes: Annotated[tuple[RayId, ...], Field(max_length=MAX_RAY_NODES)] = Field(
        default=(), description="Ids under which the node is or was in the Ray cluster when it was isolated."
    )
    deadline: AwareDatetime | None = Field(default=None, description="When its workers are ended at the latest.")
    runs: Annotated[tuple[RunCase, ...], Field(max_length=MAX_RUNS)] = ()
    message: Note = ""
    acts: Annotated[tuple[CaseAct, ...], Field(max_length=MAX_ACTS)] = ()

    @property
    def open(self) -> bool:
        """Whether something may still have to be done."""
        return self.phase is not CasePhase.RELEASED


class HealingCase(Frozen):
    """A stored case."""

    id: str
    version: int = Field(ge=1)
    updated_at: datetime
    updated_by: str
    case: CaseSpec
