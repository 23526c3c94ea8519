"""Pipeline stages and replicas of nodes, as far as a job's groups show them.

Disjoint groups that hold all nodes divide the job: into stages or into replicas.  Which is which is unknown, and
matters little: the common part of a division's nodes is removed.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from faults.detector import Job
from faults.fabric import Ints
from faults.stragglers import Roles

FEWEST: Final = 3  # nodes of a group, for a median


def roles_of(job: Job) -> Roles:
    """Return the roles: the division into the largest groups gives the level, the next one the replicas."""
    wholes = {frozenset(job.rank_node[rank] for rank in group): None for group in job.groups}
    ways = [way for way in _divisions(wholes) if sum(map(len, way)) == job.nodes]
    ways.sort(key=len)
    alike = Roles.alike(job.nodes)
    return Roles(
        _numbered(ways[0], job.nodes) if ways else alike.stage,
        _numbered(ways[1], job.nodes) if len(ways) > 1 else alike.replica,
    )


def _divisions(groups: Iterable[frozenset[int]]) -> list[list[frozenset[int]]]:
    """Divide the groups: each goes to the first division whose groups are as large and share no node with it."""
    found: list[tuple[int, set[int], list[frozenset[int]]]] = []
    for group in groups:
        if len(group) < FEWEST:
            continue
        for size, taken, way in found:
            if size == len(group) and not taken & group:
                taken.update(group)
                way.append(group)
                break
        else:
            found.append((len(group), set(group), [group]))
    return [way for _, _, way in found if len(way) > 1]


def _numbered(way: list[frozenset[int]], nodes: int) -> Ints:
    number = np.zeros(nodes, dtype=np.int64)
    for at, group in enumerate(way):
        number[list(group)] = at
    return number
