"""Lists the ready changes of a target as rows: replicas and settings of deployments."""

from typing import NamedTuple

from api.cli.common.tables import Column, number
from api.schemas.targets import TargetStatus

COLUMNS = (Column("change"), Column("deployment"), number("now"), number("planned"))


class ChangeRow(NamedTuple):
    subject: str | None  # a GPU type for replicas, a key for anything else
    deployment: str | None
    now: object
    planned: object


def change_rows(status: TargetStatus) -> list[ChangeRow]:
    """Return a row per change, replicas before settings."""
    replicas = [
        ChangeRow(each.gpu, each.deployment, each.replicas_now, each.replicas_planned) for each in status.changes
    ]
    return replicas + [ChangeRow(each.key, each.deployment, each.now, each.planned) for each in status.settings]
