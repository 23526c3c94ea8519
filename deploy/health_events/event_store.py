"""The deliveries as the API stores them: read once per reconcile, written under the lease and with their ETag."""

from dataclasses import dataclass

from api.client import AsyncClient
from api.schemas.health_events import Delivery
from api.schemas.pages import PAGE_LIMIT_MAX
from deploy.common.errors import NotLeadingError
from deploy.common.leader_election import Leadership


@dataclass(slots=True)
class EventRecord:
    """A delivery as last stored; None: it is not stored yet."""

    id: str
    delivery: Delivery | None = None
    version: int = 0
    etag: str | None = None  # a list has none


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStore:
    api: AsyncClient
    leadership: Leadership

    async def load(self) -> dict[str, EventRecord]:
        found = [each async for each in self.api.iter_health_events(limit=PAGE_LIMIT_MAX)]
        return {each.id: EventRecord(each.id, each.delivery, each.version) for each in found}

    async def save(self, record: EventRecord, delivery: Delivery) -> None:
        """Store the delivery if it differs.  Raise NotLeadingError if another forwarder has changed the record."""
        if delivery == record.delivery:
            return
        held = self.leadership.held
        if record.delivery is None:
            stored = await self.api.create_health_event(record.id, delivery, held=held)
        else:
            etag = record.etag or await self._etag(record)
            stored = await self.api.update_health_event(record.id, delivery, if_match=etag, held=held)
        record.delivery, record.version, record.etag = delivery, stored.document.version, stored.etag

    async def _etag(self, record: EventRecord) -> str:
        found = await self.api.get_health_event(record.id)
        if found.document.version != record.version:
            raise NotLeadingError(f"another forwarder has updated the health event {record.id}")
        return found.etag
