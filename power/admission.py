"""Admission by power: a prompt starts only if the row, with this prompt, stays under the limit of its priority.

    start  <=>  correction * modelled_w + step_w <= limit_w(priority, waited)

`modelled_w` is the power of the row by the nominal curves.  `correction` is the ratio of meter to model.  `step_w` is
the power that this prompt adds to its server.  Low priority has a lower limit.  A low-priority prompt that waited for
its patience gets the limit of high priority, so it does not starve and the limit still holds.

The simulator compiles `admits` and `limit_w`; the router calls them.
"""

LOW_LIMIT_SHARE = 0.98  # of the budget
HIGH_LIMIT_SHARE = 0.99
LOW_PATIENCE_S = 10.0  # a fifth of a median low-priority request: within its slack of half at the 99th percentile


def admits(row_w: float, step_w: float, limit_w: float) -> bool:
    """Return whether a prompt that adds `step_w` may start now."""
    return row_w + step_w <= limit_w


def limit_w(priority: int, waited_s: float, patience_s: float, low_limit_w: float, high_limit_w: float) -> float:
    """Return the power limit of a prompt that waited so long."""
    if priority or waited_s >= patience_s:
        return high_limit_w
    return low_limit_w
