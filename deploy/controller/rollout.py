"""Which replicas to start and stop next: make before break, a bounded number a round.  Pure.

For GPU types g with wanted w, asked a and running r replicas:

    up       while some a[g] < w[g]:            raise those a[g], and lower none
    wait     while some r[g] < w[g]:            ask for nothing
    down     when every r[g] >= w[g]:           lower each a[g] > w[g]

with at most `max_step` replicas asked for or given up in one round.  Nothing here remembers an earlier round: the three
phases follow from what is read, so a controller may die between any two steps and the next one goes on.
"""

from collections.abc import Mapping

from deploy.actuators.base import Observation, Replicas, Step


def next_steps(*, wanted: Replicas, observation: Observation, max_step: int) -> tuple[Step, ...]:
    """The steps that may be taken now.  Empty when waiting for replicas, and when there is nothing to do."""
    asked = observation.asked
    if rising := [gpu for gpu in sorted(wanted) if asked[gpu] < wanted[gpu]]:
        return _within(max_step, rising, wanted, asked)
    if missing_replicas(wanted=wanted, observation=observation):
        return ()
    return _within(max_step, [gpu for gpu in sorted(wanted) if asked[gpu] > wanted[gpu]], wanted, asked)


def missing_replicas(*, wanted: Replicas, observation: Observation) -> Mapping[str, int]:
    """GPU types that do not run what is wanted of them yet, and how many replicas they lack."""
    running = observation.running
    return {gpu: count - running[gpu] for gpu, count in sorted(wanted.items()) if running[gpu] < count}


def is_settled(*, wanted: Replicas, observation: Observation) -> bool:
    """Whether exactly what is wanted has been asked for and runs."""
    return all(observation.asked[gpu] == observation.running[gpu] == count for gpu, count in wanted.items())


def raise_to_floor(
    *, planned: Replicas, asked: Replicas, min_replicas: int, keep_unplanned: bool = True
) -> dict[str, int]:
    """The planned replicas, raised until there are `min_replicas` in all.

    What is there already is kept first, from the type with most to give up; only then is more of the most planned type
    asked for.  Without `keep_unplanned` types that the plan does not use are not kept: nothing would be sent to them.
    """
    wanted = dict(planned)
    lacking = max(0, min_replicas - sum(planned.values()))
    for gpu in sorted(planned, key=lambda gpu: (planned[gpu] - asked[gpu], gpu)):
        spare = max(0, asked[gpu] - planned[gpu]) if keep_unplanned or planned[gpu] else 0
        kept = min(lacking, spare)
        wanted[gpu] += kept
        lacking -= kept
    if lacking:
        wanted[min(planned, key=lambda gpu: (-planned[gpu], gpu))] += lacking
    return wanted


def _within(max_step: int, gpus: list[str], wanted: Replicas, asked: Replicas) -> tuple[Step, ...]:
    """Steps towards `wanted`, in order, until `max_step` replicas have moved."""
    steps: list[Step] = []
    left = max_step
    for gpu in gpus:
        difference = wanted[gpu] - asked[gpu]
        move = min(left, abs(difference))
        if move == 0:
            break
        left -= move
        after = asked[gpu] + (move if difference > 0 else -move)
        steps.append(Step(gpu=gpu, replicas_before=asked[gpu], replicas_after=after))
    return tuple(steps)
