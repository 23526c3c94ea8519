"""The origin of an export: plan, inputs and release, as Kubernetes annotations and as comments of scripts."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import Field

from fleet.documents import Frozen
from planner.request import PlanRequest
from planner.result import InputAge, Plan

PREFIX: Final = "fleetwright.io"


class PlanSource(Frozen):
    """A plan and its origin."""

    plan: Plan
    plan_id: str | None = Field(default=None, description="Of a stored plan.")
    request: PlanRequest | None = Field(default=None, description="Of a stored plan.")
    release: str = Field(description="Of Fleetwright, which writes the files.")

    @property
    def name(self) -> str:
        """The id of a stored plan; of a plan in a file its digest."""
        return self.plan_id if self.plan_id is not None else digest(self.plan.model_dump(mode="json"))

    def annotations(self) -> dict[str, str]:
        """The same for every file of one plan."""
        found = {
            f"{PREFIX}/plan": self.name,
            f"{PREFIX}/planned-at": self.plan.planned_at.isoformat(),
            f"{PREFIX}/inputs": json.dumps(list(_inputs(self.plan)), separators=(",", ":")),
            f"{PREFIX}/inputs-digest": digest([each.model_dump(mode="json") for each in self.plan.inputs]),
            f"{PREFIX}/release": self.release,
        }
        if self.request is not None:
            found[f"{PREFIX}/request-digest"] = digest(self.request.model_dump(mode="json"))
        return found


def digest(value: Any) -> str:
    """SHA-256 of the value as JSON with sorted keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def comment_lines(annotations: Mapping[str, str]) -> Iterator[str]:
    return (f"# {key}: {value}" for key, value in annotations.items())


def _inputs(plan: Plan) -> Iterator[str]:
    """The inputs behind the replicas of the plan; candidates that it does not use are left out."""
    offers = {entry.offer for entry in plan.allocation}
    gpus = {entry.gpu for entry in plan.allocation}
    models = {entry.settings.model for entry in plan.allocation if entry.settings is not None}
    used: Mapping[str, set[Any]] = {"price": offers, "gpu": gpus, "model": models}
    return (_text(each) for each in plan.inputs if each.kind not in used or each.name in used[each.kind])


def _text(each: InputAge) -> str:
    return f"{each.kind} {each.name}" + ("" if each.as_of is None else f" of {each.as_of.isoformat()}")
