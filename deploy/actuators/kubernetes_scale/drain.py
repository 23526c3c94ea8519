"""How far a drain is: what the marked replicas wait for, from their marks and their engines' load.  Pure.

A drain waits while a marked replica runs or queues requests, or does not report them, and until `max_wait_s` after the
mark at most.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from api.schemas.applications import PodDrain
from deploy.actuators.base import DrainState
from deploy.actuators.kubernetes_scale.engine_load import EngineLoad
from deploy.actuators.kubernetes_scale.replicas import Replica
from deploy.common.text import joined

MAX_NAMED = 3  # pods in one report


def drain_state(
    marked: Sequence[Replica], *, total: int, loads: Mapping[str, EngineLoad], drain: PodDrain, now: datetime
) -> tuple[DrainState, str | None]:
    """Return the state, and a report about replicas that stop with requests."""
    waits, overdue, ends = [], [], []
    for replica in marked:
        load = loads[replica.name]
        if load.requests == 0.0 or replica.drain_began is None:
            continue
        text = f"{_text(load)} on pod {replica.name}" + (f" ({load.reason})" if load.reason else "")
        end = replica.drain_began + timedelta(seconds=drain.max_wait_s)
        if now < end:
            waits.append(text)
            ends.append(end)
        else:
            overdue.append(text)
    waits_for = f"waits for {_listed(waits)}, until {max(ends):%H:%M:%S} UTC at most" if waits else None
    late = f"max_wait_s of {drain.max_wait_s:g} s is over with {_listed(overdue)}" if overdue else None
    state = DrainState(keep=total - len(marked), marked=len(marked), waits_for=waits_for)
    return state, joined(waits_for, late)


def _text(load: EngineLoad) -> str:
    if load.requests is None:
        return "an unknown number of requests"
    return f"{load.requests:g} running request{'' if load.requests == 1.0 else 's'}"


def _listed(texts: Sequence[str]) -> str:
    rest = len(texts) - MAX_NAMED
    return ", ".join([*texts[:MAX_NAMED], *([f"and {rest} more pods"] if rest > 0 else [])])
