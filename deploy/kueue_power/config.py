"""The configuration file of the power check: the rows, their label on nodes, and the watts of jobs."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from api.schemas.names import Name
from api.schemas.power import DomainName
from fleet.documents import Frozen, RuleError, Violation
from fleet.topology import LabelNames

MAX_ROWS = 1_000
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Watts = Annotated[float, Field(ge=0, le=1e9)]
LabelKey = Annotated[str, Field(pattern=r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]


class PowerCheckFile(Frozen):
    tree: Name = Field(description="Power tree of the API that has the rows.")
    rows: tuple[DomainName, ...] = Field(
        min_length=1, max_length=MAX_ROWS, description="Its power domains that jobs are assigned to."
    )
    node_label: LabelKey = Field(
        default=LabelNames().row[0], description="Label of nodes; its value is the name of the node's row."
    )
    reserved_w: Mapping[DomainName, Watts] = Field(
        default={}, description="What loads other than Kueue's jobs may draw, by power domain."
    )
    profiles_w: Mapping[Name, Watts] = Field(
        default={}, description="Watts per GPU, by the profile that the pods of a job name."
    )
    overhead_share: Annotated[float, Field(ge=0, le=5)] = Field(
        default=0.0, description="What a server draws beside its GPUs, as a share of the GPUs' rated watts."
    )
    retry_s: Annotated[int, Field(ge=1, le=3600)] = Field(
        default=30, description="After which Kueue queues a job again that had to wait."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        for name, count in Counter(self.rows).items():
            if count > 1:
                yield ("rows",), f"must be unique, got {name!r} {count} times"
            if not LABEL_VALUE.fullmatch(name):
                allowed = "letters, digits, `.`, `_`, `-`, a letter or digit at both ends"
                yield ("rows",), f"must be values of a node label ({allowed}), got {name!r}"
