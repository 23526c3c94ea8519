"""Liveness and readiness."""

from typing import Literal

from fleet.documents import Frozen


class Health(Frozen):
    """All is well; when not, the answer is a problem."""

    status: Literal["ok"]
