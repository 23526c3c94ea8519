"""How far a drain is: what the marked replicas wait for, from their marks and their engines' load.  Pure.

A drain waits for routers to read the mark, and then while a marked replica runs or queues requests, or does not report
them, until `max_wait_s` after the mark at most.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from api.schemas.applications import PodDrain
from deploy.actuators.base import DrainState
from deploy.actuators.kubernetes_scale.engine_load import EngineLoad
from deploy.actuators.kubernetes_scale.replicas import Replica
from deploy.common.text import joined

MAX_NAMED = 3  # pods in one report
ROUTERS_STOP_S = 5.0  # a router reads marks every second


def drain_state(
    marked: Sequence[Replica], *, keep: int, loads: Mapping[str, EngineLoad], drain: PodDrain, now: datetime
) -> tuple[DrainState, str | None]:
    """Return the state, and a report about replicas that stop with requests."""
    waits, overdue, ends = [], [], []
    for replica in marked:
        load, began = loads[replica.name], replica.drain_began
        idle = load.requests == 0.0
        if began is None or (idle and now >= began + timedelta(seconds=ROUTERS_STOP_S)):
            continue
        end = began + timedelta(seconds=drain.max_wait_s)
        if now < end:
            waits.append(f"routers to stop sending to pod {replica.name}" if idle else _text(load, replica.name))
            ends.append(end)
        elif not idle:
            overdue.append(_text(load, replica.name))
    waits_for = f"waits for {_listed(waits)}, until {max(ends):%H:%M:%S} UTC at most" if waits else None
    late = f"max_wait_s of {drain.max_wait_s:g} s is over with {_listed(overdue)}" if overdue else None
    state = DrainState(keep=keep, marked=len(marked), waits_for=waits_for)
    return state, joined(waits_for, late)


def _text(load: EngineLoad, pod: str) -> str:
    if load.requests is None:
        return f"an unknown number of requests on pod {pod} ({load.reason})"
    return f"{load.requests:g} running request{'' if load.requests == 1.0 else 's'} on pod {pod}"


def _listed(texts: Sequence[str]) -> str:
    rest = len(texts) - MAX_NAMED
    return ", ".join([*texts[:MAX_NAMED], *([f"and {rest} more pods"] if rest > 0 else [])])
