"""Answers of a room as they are kept: stored whole, listed by their summaries, sent as they were acknowledged."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from fastapi.responses import Response
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from api.server.problems import not_found
from api.server.service import Service
from api.store import AnswerHead, AnswerRepository, StoredAnswer, Transaction, canonical_json

Room = Callable[[Transaction], AnswerRepository]


def of_power(tx: Transaction) -> AnswerRepository:
    """Simulations of rows, plans of caps."""
    return tx.power


def of_faults(tx: Transaction) -> AnswerRepository:
    """Simulations of faults."""
    return tx.fault_answers


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
) -> StoredAnswer:
    """A record as it goes into the database."""
    return StoredAnswer(
        head=AnswerHead(
            id=record.id,
            kind=kind,
            created_at=record.created_at,
            created_by=record.created_by,
            summary=canonical_json(summary),
        ),
        request=canonical_json(request.model_dump(mode="json")),
        answer=canonical_json(answer.model_dump(mode="json")),
    )


async def listed(
    service: Service, kind: str, *, before_id: str | None, limit: int, room: Room = of_power
) -> list[dict[str, Any]]:
    """The newest answers of a kind, as lists show them."""
    async with service.store.reading() as tx:
        found = await room(tx).page(kind=kind, before_id=before_id, limit=limit)
    return [
        {"id": head.id, "created_at": head.created_at, "created_by": head.created_by, **json.loads(head.summary)}
        for head in found
    ]


async def one_stored(
    service: Service, kind: str, answer_id: str, *, answer_field: str, room: Room = of_power
) -> Response:
    """One record as text: what was stored is what was checked."""
    async with service.store.reading() as tx:
        found = await room(tx).get(kind=kind, answer_id=answer_id)
    if found is None:
        raise not_found(f"{kind} {answer_id}")
    head = {
        "id": found.head.id,
        "created_at": to_jsonable_python(found.head.created_at),
        "created_by": found.head.created_by,
    }
    body = f'{canonical_json(head)[:-1]},"{answer_field}":{found.answer},"request":{found.request}}}'
    return Response(content=body, media_type="application/json")
