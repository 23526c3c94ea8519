"""The exact change set of a target, and its digest: what an operator approves.  Pure."""

from collections.abc import Iterable, Mapping

from api.schemas.targets import Change
from deploy.actuators.base import Observation, Replicas
from deploy.common.digests import digest_of_json
from deploy.controller.config_changes import Telling


def changes_to(wanted: Replicas, *, observation: Observation, parts: Mapping[str, str]) -> tuple[Change, ...]:
    """All moves that are left, whether or not they may be made in this round."""
    asked, running = observation.asked, observation.running
    return tuple(
        Change(
            gpu=gpu,
            deployment=parts[gpu],
            replicas_now=running[gpu] if running[gpu] != count else asked[gpu],
            replicas_planned=count,
        )
        for gpu, count in sorted(wanted.items())
        if (running[gpu], asked[gpu]) != (count, count)
    )


def digest_of(
    wanted: Replicas,
    *,
    plan_id: str,
    observation: Observation,
    parts: Mapping[str, str],
    tellings: Iterable[Telling] = (),
) -> str | None:
    """Of the requests that are left to make, and of what is left to tell; None when there is none.

    Over what was asked for, not over what runs: a replica that restarts changes nothing of what is to be written.
    """
    requests = [
        (gpu, parts[gpu], observation.asked[gpu], count)
        for gpu, count in sorted(wanted.items())
        if observation.asked[gpu] != count
    ]
    settings = [(each.deployment, each.key, each.now, each.value) for each in tellings if not each.asked]
    if not requests and not settings:
        return None
    what = [plan_id, requests, settings] if settings else [plan_id, requests]
    return digest_of_json(what)
