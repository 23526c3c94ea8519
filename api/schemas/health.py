"""Liveness and readiness."""

from typing import Literal

from fleet.documents import Frozen


class Health(Frozen):
    """The successful response; a failure is a problem."""

    status: Literal["ok"]
