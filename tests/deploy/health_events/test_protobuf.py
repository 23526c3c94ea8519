"""The encoder agrees with the protobuf library, whose messages are built from descriptors."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from deploy.health_events.protobuf import (
    HealthEventMessage,
    ProcessingStrategy,
    RecommendedAction,
    encode_health_events,
)
from tests.deploy.health_events.connector import health_events_class

TEXT = st.text(max_size=300)
MESSAGES = st.builds(
    HealthEventMessage,
    agent=TEXT,
    component_class=TEXT,
    check_name=TEXT,
    node_name=TEXT,
    message=TEXT,
    is_fatal=st.booleans(),
    is_healthy=st.booleans(),
    recommended_action=st.sampled_from(RecommendedAction),
    processing_strategy=st.sampled_from(ProcessingStrategy),
    generated_at=st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    error_codes=st.lists(TEXT, max_size=3),
    entities=st.lists(st.tuples(TEXT, TEXT), max_size=3),
    metadata=st.dictionaries(TEXT, TEXT, max_size=3),
)
DECODED = health_events_class()


@given(st.lists(MESSAGES, max_size=4))
def test_each_encoded_event_is_decoded_unchanged(messages: list[HealthEventMessage]) -> None:
    found = DECODED.FromString(encode_health_events(messages))
    assert found.version == 1
    assert [_fields(each) for each in found.events] == [
        (
            *(1, each.agent, each.component_class, each.check_name, each.node_name, each.message),
            *(each.is_fatal, each.is_healthy, each.recommended_action, each.processing_strategy),
            each.generated_at,
            *(list(each.error_codes), list(each.entities), dict(each.metadata)),
        )
        for each in messages
    ]


def _fields(event: object) -> tuple[object, ...]:
    read = event.__getattribute__
    return (
        *map(read, ("version", "agent", "componentClass", "checkName", "nodeName", "message")),
        *map(read, ("isFatal", "isHealthy", "recommendedAction", "processingStrategy")),
        read("generatedTimestamp").ToDatetime(tzinfo=UTC),
        list(read("errorCode")),
        [(each.entityType, each.entityValue) for each in read("entitiesImpacted")],
        dict(read("metadata")),
    )
