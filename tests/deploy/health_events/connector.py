"""A platform connector of NVSentinel on a Unix socket, with messages built from descriptors of the protobuf library."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, empty_pb2, message_factory, timestamp_pb2

STRING, BOOL, UINT32, ENUM, MESSAGE = 9, 8, 13, 14, 11
ONE, MANY = 1, 3
ACTIONS = {"NONE": 0, "COMPONENT_RESET": 2, "CONTACT_SUPPORT": 5, "RESTART_VM": 15, "RESTART_BM": 24, "UNKNOWN": 99}
STRATEGIES = {"UNSPECIFIED": 0, "EXECUTE_REMEDIATION": 1, "STORE_ONLY": 2}
EVENT = [
    *(("version", 1, UINT32, ONE, ""), ("agent", 2, STRING, ONE, ""), ("componentClass", 3, STRING, ONE, "")),
    *(("checkName", 4, STRING, ONE, ""), ("isFatal", 5, BOOL, ONE, ""), ("isHealthy", 6, BOOL, ONE, "")),
    *(("message", 7, STRING, ONE, ""), ("recommendedAction", 8, ENUM, ONE, ".datamodels.RecommendedAction")),
    *(("errorCode", 9, STRING, MANY, ""), ("entitiesImpacted", 10, MESSAGE, MANY, ".datamodels.Entity")),
    ("metadata", 11, MESSAGE, MANY, ".datamodels.HealthEvent.MetadataEntry"),
    ("generatedTimestamp", 12, MESSAGE, ONE, ".google.protobuf.Timestamp"),
    ("nodeName", 13, STRING, ONE, ""),
    ("processingStrategy", 16, ENUM, ONE, ".datamodels.ProcessingStrategy"),
]
PAIR = [("key", 1, STRING, ONE, ""), ("value", 2, STRING, ONE, "")]
ENTITY = [("entityType", 1, STRING, ONE, ""), ("entityValue", 2, STRING, ONE, "")]
EVENTS = [("version", 1, UINT32, ONE, ""), ("events", 2, MESSAGE, MANY, ".datamodels.HealthEvent")]


def health_events_class() -> Any:
    """The class of the message `datamodels.HealthEvents`."""
    file = descriptor_pb2.FileDescriptorProto(name="health_event_test.proto", package="datamodels", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    for name, values in (("RecommendedAction", ACTIONS), ("ProcessingStrategy", STRATEGIES)):
        enum = file.enum_type.add(name=name)
        for each, number in values.items():
            enum.value.add(name=each, number=number)
    for name, fields in (("Entity", ENTITY), ("HealthEvent", EVENT), ("HealthEvents", EVENTS)):
        message = file.message_type.add(name=name)
        _add(message, fields)
        if name == "HealthEvent":
            entry = message.nested_type.add(name="MetadataEntry")
            entry.options.map_entry = True
            _add(entry, PAIR)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("datamodels.HealthEvents"))


def _add(message: Any, fields: list[tuple[str, int, int, int, str]]) -> None:
    for name, number, kind, label, type_name in fields:
        message.field.add(
            name=name, number=number, type=kind, label=label, **({"type_name": type_name} if type_name else {})
        )


@dataclass
class Connector:
    socket: str
    received: list[Any] = field(default_factory=list)  # HealthEvent messages, in order
    refuses_with: Any = None  # a gRPC status code

    async def accept(self, request: Any, context: Any) -> Any:
        if self.refuses_with is not None:
            await context.abort(self.refuses_with, "the store is not ready")
        self.received.extend(request.events)
        return empty_pb2.Empty()


@asynccontextmanager
async def platform_connector(path: Path) -> AsyncIterator[Connector]:
    """Serve the method on a socket below a short path."""
    connector = Connector(f"unix://{path}")
    method = grpc.unary_unary_rpc_method_handler(
        connector.accept,
        request_deserializer=health_events_class().FromString,
        response_serializer=empty_pb2.Empty.SerializeToString,
    )
    service = grpc.method_handlers_generic_handler("datamodels.PlatformConnector", {"HealthEventOccurredV1": method})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service,))
    assert server.add_insecure_port(connector.socket)
    await server.start()
    try:
        yield connector
    finally:
        await server.stop(None)
