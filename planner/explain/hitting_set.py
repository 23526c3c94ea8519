"""A smallest set that shares a member with each of several sets."""

from collections.abc import Sequence

Set = frozenset[int]


def smallest_hitting_set(sets: Sequence[Set]) -> Set:
    """By iterative deepening: try every set of one member, then of two, and so on.  None of the sets may be empty."""
    size = 0
    while (found := _within(sets, frozenset(), size)) is None:
        size += 1
    return found


def _within(sets: Sequence[Set], chosen: Set, left: int) -> Set | None:
    open_sets = [members for members in sets if members.isdisjoint(chosen)]
    if not open_sets:
        return chosen
    if not left:
        return None
    fewest: Set = min(open_sets, key=len)
    for member in sorted(fewest):
        if (found := _within(open_sets, chosen | {member}, left - 1)) is not None:
            return found
    return None
