"""Defines the schemas of remediation cases: one per quarantine of a node, from the drain to the release."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, StringConstraints

from api.schemas.faults import NodeName
from api.schemas.names import Text
from faults.quarantine import OUT_OF_SERVICE, NodeState
from fleet.documents import Frozen

MAX_ACTIONS: Final = 200  # the oldest are dropped first, hooks never
MAX_RUNS: Final = 64
MAX_RAY_NODES: Final = 100

# Free text for people; it can quote messages of the cluster.
Note = Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")]
RayId = Annotated[str, StringConstraints(min_length=1, max_length=160, pattern=r"^[A-Za-z0-9._:-]+$")]
Step = Annotated[int, Field(ge=0, le=2**53)]
Attempt = Annotated[int, Field(ge=1, le=1_000_000_000)]


class RemediationStage(StrEnum):
    """How far the work of a node that is out of service has moved.  docs/explanation/runtime/remediation.md"""

    REQUESTED = "requested"  # no action is done yet; without --act the message names the next one
    DRAINING = "draining"
    EVACUATING = "evacuating"  # ranks that still step have time for a checkpoint
    MIGRATING = "migrating"  # the workers on the node are being ended
    RESTARTING = "restarting"  # the runs have not reported a step on other nodes yet
    REPLACED = "replaced"  # the runs step on other nodes


class RunCase(Frozen):
    """A training run that had workers on the node."""

    run: Text
    attempt: Attempt = Field(description="Of the worker group that had to end.")
    workers: Annotated[int, Field(ge=0, le=1_000_000)] = Field(description="Workers on the node.")
    checkpoint_step: Step | None = Field(default=None, description="Newest checkpoint when the case began.")
    resumed_attempt: Attempt | None = None
    resumed_step: Step | None = Field(default=None, description="The first step reported on other nodes.")
    over: bool = Field(default=False, description="The run has ended.")

    @property
    def settled(self) -> bool:
        """Whether the case no longer waits for this run."""
        return self.over or self.resumed_step is not None


class CaseAction(Frozen):
    """An action, and its result."""

    at: AwareDatetime
    action: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,31}$")]
    detail: Note = ""


class CaseSpec(Frozen):
    """A case as the remediation controller stores it."""

    node: NodeName
    diagnosis_id: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        default=None, description="The diagnosis of the quarantine; null: an operator cordoned the node."
    )
    can_checkpoint: bool = Field(
        default=False, description="The ranks can still write a checkpoint: the fault is slow, not a hang."
    )
    state: NodeState = Field(
        description="State of the node in the quarantine policy.  A case is open while the node is out of service."
    )
    stage: RemediationStage
    since: AwareDatetime = Field(description="Start of the current state and stage.")
    opened_at: AwareDatetime
    ray_nodes: Annotated[tuple[RayId, ...], Field(max_length=MAX_RAY_NODES)] = Field(
        default=(), description="Ids of the node in the Ray cluster during its quarantine."
    )
    deadline: AwareDatetime | None = Field(default=None, description="The latest time at which its workers are ended.")
    runs: Annotated[tuple[RunCase, ...], Field(max_length=MAX_RUNS)] = ()
    message: Note = ""
    actions: Annotated[tuple[CaseAction, ...], Field(max_length=MAX_ACTIONS)] = ()

    @property
    def open(self) -> bool:
        """Whether the node is out of service."""
        return self.state in OUT_OF_SERVICE

    @property
    def progress(self) -> tuple[NodeState, RemediationStage]:
        return self.state, self.stage


class RemediationCase(Frozen):
    """A stored case."""

    id: str
    version: int = Field(ge=1)
    updated_at: datetime
    updated_by: str
    case: CaseSpec
