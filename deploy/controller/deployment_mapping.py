"""Which part of a target takes a replica of a plan.

A part is what is scaled together: a deployment, a worker group, a run.  Its key has the form of the plan's option
names, with the GPU type in place of the offer:

    H100-SXM                   any replica on this GPU type
    H100-SXM/x2                replicas of two GPUs
    H100-SXM/prefill           replicas that only prefill; `decode` likewise
    H100-SXM/tp2-fp8           replicas of this parallelism and precision; for options given outright, this option
    ...@0.7                    any of these, at this clock level only

If several keys fit, the most specific one takes the replica: option before role, role before size, size before type,
and each with its clock before the same without.  So a replica has one part or none, whatever the offers.
"""

from collections.abc import Collection

from planner.answer import Allocation

ROLES = ("prefill", "decode")


def part_of(entry: Allocation, parts: Collection[str]) -> str | None:
    """Return the part that takes these replicas; None where the target has none for them."""
    return next((name for name in part_names(entry) if name in parts), None)


def part_names(entry: Allocation) -> list[str]:
    """Return every key that fits these replicas, the most specific first."""
    clocks = ["" if entry.clock is None else f"@{entry.clock:g}", ""]
    role = role_of(entry)
    scopes = [f"/{_option(entry)}", *([f"/{role}"] if role else []), f"/x{entry.gpus_per_replica}", ""]
    return list(dict.fromkeys(f"{entry.gpu}{scope}{clock}" for scope in scopes for clock in clocks))


def role_of(entry: Allocation) -> str | None:
    """Return the role of these replicas; None where each does both.  Options given outright have no role."""
    if entry.offer is None:
        return None
    return next((role for role in ROLES if _option(entry).endswith(f"-{role}")), None)


def _option(entry: Allocation) -> str:
    """Return the option's name without its offer and its clock."""
    name = entry.option if entry.offer is None else entry.option.removeprefix(f"{entry.offer}/")
    return name if entry.clock is None else name.removesuffix(f"@{entry.clock:g}")
