"""What one round has found out about one target so far, and the report made of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from api.schemas.expert_maps import ExpertMapStatus
from api.schemas.target_state import Approval, TargetMemory
from api.schemas.targets import Phase, Target, TargetStatus
from deploy.actuators.base import Observation, Replicas, Step
from deploy.controller.change_set import changes_to, digest_of
from deploy.controller.config_changes import Telling, goals
from deploy.controller.rollout import missing_replicas

MESSAGE_MAX_CHARS = 500
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")


@dataclass(slots=True)
class Seen:
    """Filled from the top while the round goes on; a failure reports what was seen before it."""

    target: Target
    observation: Observation = field(default_factory=lambda: Observation(asked={}, running={}))
    kept: TargetMemory | None = None  # what the API holds; None: not read, and so not to be touched
    memory: TargetMemory = field(default_factory=TargetMemory)  # what it shall hold
    approval: Approval | None = None
    plan_id: str | None = None  # the plan pursued: not the wanted one while that is refused
    planned: Replicas = field(default_factory=dict)
    wanted: Replicas = field(default_factory=dict)  # the planned replicas, raised to the target's least
    settings_digest: str | None = None  # of all that deployments are to be told for the plan pursued
    tellings: tuple[Telling, ...] = ()  # what of it is left
    digest: str | None = None
    steps: tuple[Step, ...] = ()
    told: tuple[Telling, ...] = ()  # in this round, or what would be
    expert_maps: Mapping[str, ExpertMapStatus] = field(default_factory=dict)

    @property
    def wanted_plan_id(self) -> str:
        """The plan that the target is to have."""
        return self.target.spec.plan_id or ""

    def note_digest(self) -> None:
        """Put a name to the change set that leads to what is wanted."""
        parts = self.target.spec.application.parts
        self.digest = digest_of(
            self.wanted,
            plan_id=self.wanted_plan_id,
            observation=self.observation,
            parts=parts,
            tellings=goals(self.tellings),
        )

    def report(self, *, phase: Phase, message: str | None, now: datetime, with_changes: bool) -> TargetStatus:
        """The report on the target."""
        parts = self.target.spec.application.parts
        changes = changes_to(self.wanted, observation=self.observation, parts=parts) if with_changes else ()
        return TargetStatus(
            phase=phase,
            observed_at=now,
            plan_id=self.plan_id or self.target.spec.plan_id,
            planned=dict(self.planned),
            applied=dict(self.observation.running),
            changes=changes,
            settings=tuple(each.change for each in goals(self.tellings)) if with_changes else (),
            message=one_line(message) if message else None,
            digest=self.digest if with_changes else None,
            memory=self.memory if self.kept is not None else None,
            expert_maps=dict(self.expert_maps),
        )

    def notes(self) -> str | None:
        """What is worth saying of the target whatever is done about it."""
        notes, least = [], self.target.spec.min_replicas
        if (in_all := sum(self.planned.values())) < least:
            notes.append(f"the plan has {in_all} in all; min_replicas keeps {least}")
        asked_but_absent = {
            gpu: count
            for gpu, count in missing_replicas(wanted=self.wanted, observation=self.observation).items()
            if self.observation.asked[gpu] >= self.wanted[gpu]
        }
        if asked_but_absent:
            notes.append("waiting for " + ", ".join(f"{count} {gpu}" for gpu, count in asked_but_absent.items()))
        return joined(*notes, *map(str, goals(self.tellings)), self.observation.note)


def joined(*notes: str | None) -> str | None:
    """Several remarks as one."""
    return "; ".join(note for note in notes if note) or None


def one_line(text: str) -> str:
    """Text as a report may carry it: other people's errors hold line ends, and have no bounds."""
    flat = _CONTROL_CHARACTERS.sub(" ", text).strip()
    return flat if len(flat) <= MESSAGE_MAX_CHARS else flat[: MESSAGE_MAX_CHARS - 1] + "…"
