"""The power tree as a document.  A tree that violates a rule cannot be constructed."""

from functools import cached_property
from typing import Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fleet.documents import Frozen, RuleError
from fleet.topology.hostlist import Name
from power.server_model import BLOOM_A100, ServerModel
from power.tree.elements import Correlation, Feed, ServerGroup
from power.tree.hierarchy import Hierarchy
from power.tree.validation import violations

MAX_GROUPS = 10_000
MAX_SERVERS = 1_000
BUILTIN_SERVERS = (BLOOM_A100,)


class PowerTree(Frozen):
    """Feeds, the servers on them, and how many periods of the day they are described for."""

    name: Name = "tree"
    periods: int = Field(default=24, ge=1, le=8784)
    period_h: float = Field(default=1.0, gt=0, le=168)
    feeds: tuple[Feed, ...] = Field(min_length=1, max_length=MAX_GROUPS)
    servers: tuple[ServerModel, ...] = Field(default=(), max_length=MAX_SERVERS)
    groups: tuple[ServerGroup, ...] = Field(default=(), max_length=MAX_GROUPS)
    correlation: Correlation = Correlation()
    power_error: float = Field(
        default=0.03, ge=0, lt=1, description="Of the servers' watts, as a share: widens intervals, moves no cap."
    )

    @field_validator("feeds", "servers", "groups", mode="before")
    @classmethod
    def _is_not_too_long(cls, given: Any, info: ValidationInfo) -> Any:
        """Check the number of entries first: validating a million entries takes minutes."""
        most = MAX_SERVERS if info.field_name == "servers" else MAX_GROUPS
        if isinstance(given, list | tuple) and len(given) > most:
            raise RuleError([((), f"must have at most {most:,} entries, got {len(given):,}")])
        return given

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        RuleError.raise_for(
            violations(self.feeds, self.groups, servers=self.known_servers, periods=self.periods, tree=self.name)
        )
        return self

    @property
    def known_servers(self) -> tuple[ServerModel, ...]:
        """Return the tree's own servers, then those that ship."""
        return (*self.servers, *BUILTIN_SERVERS)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        return Hierarchy(self.feeds, self.groups, self.known_servers)
