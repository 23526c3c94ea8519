"""What one reconcile has found out about a target so far, its change set with the digest, and the report.  Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from api.schemas.expert_maps import ExpertMapStatus
from api.schemas.target_state import Approval, TargetState
from api.schemas.targets import Change, Phase, Target, TargetStatus
from api.schemas.wanted import WantedCounts
from deploy.actuators.base import Drain, Replicas, Step, TargetSnapshot
from deploy.common.text import digest_of_json, joined, one_line
from deploy.controller.config_changes import ConfigChange, final_changes
from deploy.controller.rollout import missing_replicas


def change_set(wanted: Replicas, *, observation: TargetSnapshot, parts: Mapping[str, str]) -> tuple[Change, ...]:
    requested, running = observation.requested, observation.running
    return tuple(
        Change(
            gpu=part,
            deployment=parts[part],
            replicas_now=running[part] if running[part] != count else requested[part],
            replicas_planned=count,
        )
        for part, count in sorted(wanted.items())
        if (running[part], requested[part]) != (count, count)
    )


def change_set_digest(
    wanted: Replicas,
    *,
    plan_id: str,
    observation: TargetSnapshot,
    parts: Mapping[str, str],
    config_changes: Iterable[ConfigChange] = (),
) -> str | None:
    """Return the digest of the writes that are left; None when there is none.

    It covers requested counts instead of running ones: a replica that restarts does not change the digest.
    """
    counts = [
        (part, parts[part], observation.requested[part], count)
        for part, count in sorted(wanted.items())
        if observation.requested[part] != count
    ]
    settings = [(each.deployment, each.key, each.current, each.value) for each in config_changes if not each.is_written]
    if not counts and not settings:
        return None
    return digest_of_json([plan_id, counts, settings] if settings else [plan_id, counts])


@dataclass(slots=True)
class ReconcileState:
    """Filled in the order of the fields; a failure reports the fields filled before it."""

    target: Target
    observation: TargetSnapshot = field(default_factory=lambda: TargetSnapshot(requested={}, running={}))
    stored: TargetState | None = None  # the state that the API stores; None: not read, and so not to be written
    target_state: TargetState = field(default_factory=TargetState)  # the state to store
    approval: Approval | None = None
    plan_id: str | None = None  # the plan pursued; not the target's plan while that one is refused
    planned: Replicas = field(default_factory=dict)
    wanted: Replicas = field(default_factory=dict)  # the planned replicas, raised to the target's min_replicas
    publishes: bool = False  # the wanted replicas are for an external autoscaler
    settings_digest: str | None = None  # of all configuration that the plan pursued wants
    config_changes: tuple[ConfigChange, ...] = ()  # those that are left
    digest: str | None = None
    steps: tuple[Step, ...] = ()  # of this reconcile; in a dry run, of the next one
    config_writes: tuple[ConfigChange, ...] = ()  # likewise
    drains: tuple[Drain, ...] = ()  # likewise
    expert_maps: Mapping[str, ExpertMapStatus] = field(default_factory=dict)

    @property
    def target_plan_id(self) -> str:
        return self.target.spec.plan_id or ""

    def compute_digest(self) -> None:
        self.digest = change_set_digest(
            self.wanted,
            plan_id=self.target_plan_id,
            observation=self.observation,
            parts=self.target.spec.application.parts,
            config_changes=final_changes(self.config_changes),
        )

    def report(self, *, phase: Phase, message: str | None, now: datetime, with_changes: bool) -> TargetStatus:
        parts = self.target.spec.application.parts
        changes = change_set(self.wanted, observation=self.observation, parts=parts) if with_changes else ()
        return TargetStatus(
            phase=phase,
            observed_at=now,
            plan_id=self.plan_id or self.target.spec.plan_id,
            planned=dict(self.planned),
            applied=dict(self.observation.running),
            changes=changes,
            settings=tuple(each.change for each in final_changes(self.config_changes)) if with_changes else (),
            message=one_line(message) if message else None,
            digest=self.digest if with_changes else None,
            state=self.target_state if self.stored is not None else None,
            expert_maps=dict(self.expert_maps),
            wanted=self._published(now) if phase is not Phase.FAILED else None,
        )

    def _published(self, now: datetime) -> WantedCounts | None:
        if not self.publishes or not self.wanted:
            return None
        return WantedCounts(plan_id=self.target_plan_id, at=now, replicas=dict(self.wanted))

    def notes(self) -> str | None:
        """Return the facts that every report on the target contains."""
        notes, least = [], self.target.spec.min_replicas
        if (total := sum(self.planned.values())) < least:
            notes.append(f"the plan has {total} in all; min_replicas keeps {least}")
        starting = {
            part: count
            for part, count in missing_replicas(wanted=self.wanted, observation=self.observation).items()
            if self.observation.requested[part] >= self.wanted[part]
        }
        if starting:
            notes.append("waiting for " + ", ".join(f"{count} {part}" for part, count in starting.items()))
        changes = map(str, final_changes(self.config_changes))
        return joined(*notes, *changes, self.observation.note, self.observation.warning)
