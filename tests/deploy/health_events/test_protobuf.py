"""The encoder agrees with the protobuf library, whose messages are built from descriptors."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from google.protobuf import text_format

from api.schemas.health_events import EventDiagnosis, HealthEvent, HealthState
from deploy.health_events.nvsentinel import messages_of
from deploy.health_events.protobuf import (
    HealthEventMessage,
    ProcessingStrategy,
    RecommendedAction,
    encode_health_events,
)
from faults.diagnosis import FaultClass, Scope
from tests.deploy.health_events.connector import health_events_class

SAMPLE = Path(__file__).parents[4] / "shared/data/contracts/nvsentinel/samples/third_party_health_events.textproto"
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


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the shared contracts are not present")
def test_our_fatal_and_healthy_events_have_the_fields_of_the_published_sample() -> None:
    fault, recovery = text_format.Parse(SAMPLE.read_text(), DECODED()).events
    cause = EventDiagnosis(
        id="d", job="llm", fault=FaultClass.CRASH, scope=Scope.NODE, confidence=0.9, reason="dial tcp: i/o timeout"
    )
    at = datetime(2026, 11, 21, tzinfo=UTC)
    for sample, state in ((fault, HealthState.OUT_OF_SERVICE), (recovery, HealthState.HEALTHY)):
        event = HealthEvent(id="a" * 32, at=at, state=state, node="gpu-node-42", diagnosis=cause)
        (ours,) = DECODED.FromString(encode_health_events(messages_of(event))).events
        missing = {each.name for each, _value in sample.ListFields()} - {each.name for each, _ in ours.ListFields()}
        assert missing == set()
        same = ("version", "isFatal", "isHealthy", "recommendedAction", "nodeName", "processingStrategy")
        assert [getattr(ours, name) for name in same] == [getattr(sample, name) for name in same]


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
