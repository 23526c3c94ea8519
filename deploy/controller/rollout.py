"""The order of replica changes: make before break, a limited number per reconcile.  Pure.

For parts p with wanted w, requested a and running r replicas:

    up       while some a[p] < w[p]:            raise those a[p], and lower none
    wait     while some r[p] < w[p]:            request nothing
    down     when every r[p] >= w[p]:           lower each a[p] > w[p]

At most `max_step` replicas are requested or given up in one reconcile.  Parts whose replicas are drained first go down
in two steps: mark the replicas that stop, then lower the count once those run no request.  All phases follow from the
observation alone, so a controller may stop between any two steps and the next one continues.
"""

from collections.abc import Iterable, Mapping

from deploy.actuators.base import Drain, Replicas, Step, TargetSnapshot
from deploy.common.errors import PlanUnusableError


def plan_changes(*, wanted: Replicas, observation: TargetSnapshot, max_step: int) -> tuple[Step, ...]:
    """Return the steps allowed now; none while replicas start, and when nothing differs.

    Raise PlanUnusableError where the plan is outside the bounds of a part: then no part of it is applied.
    """
    for part, count in sorted(wanted.items()):
        bounds = observation.bounds.get(part)
        if bounds is not None and not bounds.min_replicas <= count <= bounds.max_replicas:
            raise PlanUnusableError(
                f"the plan has {count} {part}: {bounds.source} allows {bounds.min_replicas} to {bounds.max_replicas}"
            )
    requested = observation.requested
    if rising := [part for part in sorted(wanted) if requested[part] < wanted[part]]:
        return _within(max_step, rising, wanted, requested)
    if missing_replicas(wanted=wanted, observation=observation):
        return ()
    return _within(max_step, [part for part in sorted(wanted) if requested[part] > wanted[part]], wanted, requested)


def drained_first(
    steps: Iterable[Step], *, wanted: Replicas, observation: TargetSnapshot
) -> tuple[tuple[Step, ...], tuple[Drain, ...]]:
    """Return the steps that need not wait for a drain, and the drains to write now.

    A decrease to `after` of a part with a drain state: mark while more than `after` replicas are unmarked, wait while
    the marked ones may not stop, then lower the count.
    """
    free, drains = [], list(stale_drains(wanted=wanted, observation=observation))
    for step in steps:
        state = observation.drains.get(step.part)
        if step.is_increase or state is None:
            free.append(step)
        elif state.keep > step.replicas_after:
            drains.append(Drain(part=step.part, keep=step.replicas_after))
        elif state.waits_for is None:
            free.append(step)
    return tuple(free), tuple(drains)


def stale_drains(*, wanted: Replicas, observation: TargetSnapshot) -> tuple[Drain, ...]:
    """Return the drains that unmark replicas which the plan keeps."""
    return tuple(
        Drain(part=part, keep=wanted[part])
        for part, state in sorted(observation.drains.items())
        if state.marked and state.keep < wanted[part]
    )


def verify(*, wanted: Replicas, observation: TargetSnapshot) -> bool:
    """Return whether exactly the wanted replicas are requested and run."""
    return all(observation.requested[part] == observation.running[part] == count for part, count in wanted.items())


def missing_replicas(*, wanted: Replicas, observation: TargetSnapshot) -> Mapping[str, int]:
    running = observation.running
    return {part: count - running[part] for part, count in sorted(wanted.items()) if running[part] < count}


def raise_to_floor(
    *, planned: Replicas, requested: Replicas, min_replicas: int, keep_unplanned: bool = True
) -> dict[str, int]:
    """Return the planned replicas, raised to `min_replicas` in total.

    Existing replicas are kept first, of the part with the largest surplus; then replicas of the most planned part are
    added.  Without `keep_unplanned`, parts that the plan does not use are not kept, because they get no requests.
    """
    wanted = dict(planned)
    lacking = max(0, min_replicas - sum(planned.values()))
    for part in sorted(planned, key=lambda part: (planned[part] - requested[part], part)):
        spare = max(0, requested[part] - planned[part]) if keep_unplanned or planned[part] else 0
        kept = min(lacking, spare)
        wanted[part] += kept
        lacking -= kept
    if lacking:
        wanted[min(planned, key=lambda part: (-planned[part], part))] += lacking
    return wanted


def _within(max_step: int, parts: list[str], wanted: Replicas, requested: Replicas) -> tuple[Step, ...]:
    """Return steps towards `wanted`, in order, until `max_step` replicas have changed."""
    steps: list[Step] = []
    left = max_step
    for part in parts:
        difference = wanted[part] - requested[part]
        size = min(left, abs(difference))
        if size == 0:
            break
        left -= size
        after = requested[part] + (size if difference > 0 else -size)
        steps.append(Step(part=part, replicas_before=requested[part], replicas_after=after))
    return tuple(steps)
