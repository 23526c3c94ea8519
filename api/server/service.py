"""Holds the parts that every route uses: store, settings, clock, metrics and jobs."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Request

from api.server.bodies import BodyBudget, BodyChecker
from api.server.context import current_request_id
from api.server.database_health import DatabaseHealth
from api.server.events import EventFeed
from api.server.jobs import Jobs
from api.server.metrics import ServiceMetrics
from api.server.settings import Settings
from api.server.shared_page import SharedPage
from api.server.token_cache import TokenCache
from api.server.wanted import PublishedObjects
from api.store import Store, Transaction


@dataclass(frozen=True, slots=True)
class Service:
    store: Store
    settings: Settings
    metrics: ServiceMetrics
    jobs: Jobs
    database_health: DatabaseHealth
    now: Callable[[], datetime]
    monotonic_s: Callable[[], float]
    schema_head: str
    metrics_page: SharedPage[bytes]
    published_objects: SharedPage[PublishedObjects]
    token_cache: TokenCache
    events: EventFeed
    body_budget: BodyBudget = field(default_factory=BodyBudget)
    body_checker: BodyChecker = field(default_factory=BodyChecker)
    # Set once the first token is stored, or when the service creates none.
    first_token_stored: asyncio.Event = field(default_factory=asyncio.Event)

    def supports_schema(self, revision: str | None) -> bool:
        """Check that the schema has everything that this program needs.  Revisions are numbered and compatible with the
        previous release, so that old replicas keep serving during a rollout.
        """
        return revision is not None and revision >= self.schema_head

    async def audit(
        self,
        tx: Transaction,
        *,
        actor: str,
        action: str,
        subject: str,
        detail: Mapping[str, Any] | None = None,
        project: str | None = None,
    ) -> None:
        """Append an audit entry.  Call it last in a transaction: it takes the lock of all writers.

        `project` owns the subject; its readers receive the event of this entry.
        """
        await tx.audit.append(
            at=self.now(),
            actor=actor,
            action=action,
            subject=subject,
            detail=detail or {},
            request_id=current_request_id(),
            project=project,
        )


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service)]
