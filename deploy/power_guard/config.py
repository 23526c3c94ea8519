"""The guard's configuration file: the row, its agents, and whether to send commands."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from deploy.common.credentials import AgentTls
from deploy.node_agent.schemas import ActuationMode
from fleet.documents import Frozen, RuleError, Violation
from power.guard import Duty, GuardSettings, Row
from power.policies.registry import POLICY_NAMES
from power.server_model import BLOOM_A100, Draw, ServerModel

MAX_SERVERS = 10_000
BUILTIN_MODELS = {model.name: model for model in (BLOOM_A100,)}

Name = Annotated[str, Field(min_length=1, max_length=200)]
Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=1000)]


class AgentEntry(Frozen):
    name: Name
    url: Url
    duty: Literal["low", "high", "training"] = "high"
    model: Name = BLOOM_A100.name


class AgentDiscovery(Frozen):
    """A headless Service whose addresses are those of the row's agents; each agent reports the name of its node.

    Only DNS is used, so the guard needs no rights on Kubernetes.
    """

    service: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$", max_length=253)]
    port: Annotated[int, Field(ge=1, le=65_535)] = 9403
    scheme: Literal["http", "https"] = "http"
    server_name: Annotated[str, Field(max_length=253)] = ""  # in the agents' certificates; empty: the service
    duty: Literal["low", "high", "training"] = "high"
    model: Name = BLOOM_A100.name
    every_s: Annotated[float, Field(ge=1, le=3600)] = 10.0
    forget_s: Annotated[float, Field(ge=0, le=86_400)] = 600.0  # a server without agent counts with its worst case


class BudgetsFrom(Frozen):
    """The API that has the row's budget, and the period of fetches."""

    url: Url
    token_file: Path | None = None  # of the scope `read`; none for an API without authentication
    every_s: Annotated[float, Field(ge=0.1, le=60)] = 5.0


class GuardFile(Frozen):
    row: Name  # the power domain that budgets name
    settings: GuardSettings
    agents: Annotated[tuple[AgentEntry, ...], Field(max_length=MAX_SERVERS)] = ()
    discover: AgentDiscovery | None = None  # in place of a list of agents
    models: tuple[ServerModel, ...] = ()  # in addition to the built-in ones
    training: Draw | None = None  # of a server that trains, at the plug
    mode: ActuationMode = ActuationMode.OBSERVE
    policy: Name = "ladder"
    command_delay_s: Annotated[float, Field(ge=0, le=3600)] = 1.0
    guard: Name = "guard"  # its name at the agents
    lease_s: Annotated[float, Field(gt=0, le=3600)] = 10.0  # of the agents, after the last contact
    answer_s: Annotated[float, Field(gt=0, le=10)] = 0.8  # timeout of agents and meter
    meter: Url | None = None  # of the whole row; without one the agents' watts are added up
    max_missing_share: Annotated[float, Field(ge=0, le=1)] = 0.1  # agents that may count with their worst case
    agent_token_file: Path | None = None
    agent_tls: AgentTls | None = None
    budget_token_file: Path | None = None  # without it PUT /budget does not exist
    budgets_from: BudgetsFrom | None = None  # without it no budget is fetched

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    @property
    def known_models(self) -> dict[str, ServerModel]:
        """Return the models by name; the file's precede the built-in ones."""
        return BUILTIN_MODELS | {model.name: model for model in self.models}

    @property
    def token_files(self) -> tuple[Path, ...]:
        fetched = self.budgets_from.token_file if self.budgets_from else None
        return tuple(path for path in (self.agent_token_file, self.budget_token_file, fetched) if path)

    def with_agents(self, agents: tuple[AgentEntry, ...]) -> Self:
        """Return the file with these agents in place of the discovery."""
        return self.model_validate(dict(self) | {"agents": agents, "discover": None})

    def servers(self) -> Row:
        models = self.known_models
        names = sorted({agent.model for agent in self.agents})
        return Row(
            models=tuple(models[name] for name in names),
            kind=np.array([names.index(agent.model) for agent in self.agents], dtype=np.int64),
            duty=np.array([Duty[agent.duty.upper()] for agent in self.agents], dtype=np.int64),
            training=self.training,
        )

    def _violations(self) -> Iterator[Violation]:
        if bool(self.agents) == (self.discover is not None):
            yield ("agents",), "expected either at least one agent, or discover"
        if self.discover is not None and self.discover.model not in self.known_models:
            known = ", ".join(sorted(self.known_models))
            yield ("discover", "model"), f"unknown model {self.discover.model!r}; known: {known}"
        if self.discover is not None and (self.agent_tls is not None) != (self.discover.scheme == "https"):
            yield ("discover", "scheme"), f"expected https exactly with agent_tls, got {self.discover.scheme}"
        if self.policy not in POLICY_NAMES:
            yield ("policy",), f"must be one of {', '.join(POLICY_NAMES)}, got {self.policy!r}"
        if self.lease_s < 2 * self.settings.period_s:
            min_s = 2 * self.settings.period_s
            yield ("lease_s",), f"must be at least two periods ({min_s:g} s), got {self.lease_s:g}"
        if 2 * self.answer_s > self.settings.period_s:
            max_s = self.settings.period_s / 2
            yield ("answer_s",), f"must be at most half a period ({max_s:g} s), got {self.answer_s:g}"
        names_so_far: set[str] = set()
        for at, agent in enumerate(self.agents):
            if agent.name in names_so_far:
                yield ("agents", at, "name"), f"{agent.name!r} is there twice"
            names_so_far.add(agent.name)
            if self.agent_tls is not None and not agent.url.startswith("https:"):
                yield ("agents", at, "url"), "must begin with https:, for agent_tls is given"
            if agent.model not in self.known_models:
                known = ", ".join(sorted(self.known_models))
                yield ("agents", at, "model"), f"unknown model {agent.model!r}; known: {known}"
