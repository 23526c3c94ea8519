"""The change set of a target and its digest, which an operator approves.  Pure."""

from collections.abc import Iterable, Mapping

from api.schemas.targets import Change
from deploy.actuators.base import Observation, Replicas
from deploy.common.digests import digest_of_json
from deploy.controller.config_changes import ConfigChange


def change_set(wanted: Replicas, *, observation: Observation, parts: Mapping[str, str]) -> tuple[Change, ...]:
    """Return all replica changes that are left, whether or not this reconcile may make them."""
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
    observation: Observation,
    parts: Mapping[str, str],
    config_changes: Iterable[ConfigChange] = (),
) -> str | None:
    """Return the digest of the writes that are left; None when there is none.

    It covers requested counts instead of running ones: a replica that restarts does not change what is to be written.
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
