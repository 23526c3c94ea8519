"""Which part of a target a replica of a plan is for.

A part is what is scaled together: a deployment, a worker group, a run.  Its name says which replicas it takes, as the
plan names options, with the GPU type where the plan has the offer:

    H100-SXM                   any replica on this GPU type
    H100-SXM/x2                those of two GPUs
    H100-SXM/tp2-fp8           those run in just this way, or, where options were given outright, those of this option
    ...@0.7                    any of these, at this clock level only

Of several parts that fit, the one that says more takes the replica: how it is run before its size, its size before
nothing, and each with its clock before the same without.  So a replica has one part or none, whatever the offers.
"""

from collections.abc import Collection

from planner.answer import Allocation


def part_of(entry: Allocation, parts: Collection[str]) -> str | None:
    """The part that takes these replicas; None where the target has none for them."""
    return next((name for name in part_names(entry) if name in parts), None)


def part_names(entry: Allocation) -> list[str]:
    """Every name that a part for these replicas may have, from the one that says most to the bare GPU type."""
    clocks = ["" if entry.clock is None else f"@{entry.clock:g}", ""]
    ways = [f"/{_way(entry)}", f"/x{entry.gpus_per_replica}", ""]
    return list(dict.fromkeys(f"{entry.gpu}{way}{clock}" for way in ways for clock in clocks))


def _way(entry: Allocation) -> str:
    """How a replica is run: the option's name without its offer and its clock."""
    name = entry.option if entry.offer is None else entry.option.removeprefix(f"{entry.offer}/")
    return name if entry.clock is None else name.removesuffix(f"@{entry.clock:g}")
