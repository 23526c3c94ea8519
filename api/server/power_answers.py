"""Answers about power as they are kept: stored whole, listed by their summaries, sent as they were acknowledged."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from fastapi.responses import Response
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from api.server.problems import not_found
from api.server.service import Service
from api.store import PowerHead, StoredPower, canonical_json


class Record(Protocol):
    """What every record says of itself."""

    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...

    @property
    def created_by(self) -> str: ...


def stored_of(
    record: Record, *, kind: str, summary: Mapping[str, Any], request: BaseModel, answer: BaseModel
) -> StoredPower:
    """A record as it goes into the database."""
    return StoredPower(
        head=PowerHead(
            id=record.id,
            kind=kind,
            created_at=record.created_at,
            created_by=record.created_by,
            summary=canonical_json(summary),
        ),
        request=canonical_json(request.model_dump(mode="json")),
        answer=canonical_json(answer.model_dump(mode="json")),
    )


async def listed(service: Service, kind: str, *, before_id: str | None, limit: int) -> list[dict[str, Any]]:
    """The newest answers of a kind, as lists show them."""
    async with service.store.reading() as tx:
        found = await tx.power.page(kind=kind, before_id=before_id, limit=limit)
    return [
        {"id": head.id, "created_at": head.created_at, "created_by": head.created_by, **json.loads(head.summary)}
        for head in found
    ]


async def one_stored(service: Service, kind: str, answer_id: str, *, answer_field: str) -> Response:
    """One record as text: what was stored is what was checked."""
    async with service.store.reading() as tx:
        found = await tx.power.get(kind=kind, answer_id=answer_id)
    if found is None:
        raise not_found(f"{kind} {answer_id}")
    head = {
        "id": found.head.id,
        "created_at": to_jsonable_python(found.head.created_at),
        "created_by": found.head.created_by,
    }
    body = f'{canonical_json(head)[:-1]},"{answer_field}":{found.answer},"request":{found.request}}}'
    return Response(content=body, media_type="application/json")
