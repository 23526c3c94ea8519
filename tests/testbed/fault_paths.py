"""Provides a job on a small fabric in which the correct cable of each connection is obvious."""

from copy import deepcopy
from typing import Any

from api.server.examples import bodies


def two_rings(**changes: Any) -> dict[str, Any]:
    """Build two rings between two leaves with two cables: one cable per ring, unless a hash puts both on one."""
    body: dict[str, Any] = deepcopy(bodies()["plan_fault_paths"])
    return body | changes
