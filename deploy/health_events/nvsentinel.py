"""NVSentinel as an external monitor: a `HealthEvent` over the gRPC socket of its platform connector.

A node that the quarantine policy took out of service is a fatal event: NVSentinel cordons and drains it by its rules.
A diagnosis of a node in service is stored only, after a healthy event that ends an earlier fatal one.  All events of a
node have one check name, so NVSentinel keeps one condition per node, and a repeated event changes nothing.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from api.schemas.health_events import EventDiagnosis, HealthEvent, HealthState, OutletName
from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.kubernetes_node_marks import AGENT
from deploy.common.text import first_line
from deploy.common.topology_discovery import UnusableSourceError
from deploy.health_events.protobuf import (
    METHOD,
    HealthEventMessage,
    ProcessingStrategy,
    RecommendedAction,
    encode_health_events,
)
from faults.diagnosis import Scope

CHECK_NAME: Final = "FleetwrightNodeFault"
TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NvsentinelOutlet:
    channel: Any  # grpc.aio.Channel, which has no type information
    name: OutletName = field(default=OutletName.NVSENTINEL, init=False)
    with_diagnoses: bool = field(default=True, init=False)
    with_history: bool = field(default=False, init=False)

    def takes(self, event: HealthEvent) -> bool:
        return event.node is not None

    def describe(self, event: HealthEvent) -> str:
        last = messages_of(event)[-1]
        kind = "healthy" if last.is_healthy else "fatal" if last.is_fatal else "stored-only"
        return f"a {kind} event of node {event.node}: {last.message}"

    async def send(self, event: HealthEvent) -> str:
        import grpc  # noqa: PLC0415 - comes with the extra

        call = self.channel.unary_unary(METHOD)
        try:
            await call(encode_health_events(messages_of(event)), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            text = f"the platform connector returned {error.code().name}: {first_line(error.details() or '')}"
            is_gone = error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
            raise (UnreachableError if is_gone else ActuationError)(text) from error
        return "accepted"

    async def close(self) -> None:
        await self.channel.close()


def nvsentinel_outlet(socket: str) -> NvsentinelOutlet:
    """Open a channel to `unix:///PATH`; it connects at the first event."""
    try:
        import grpc  # noqa: PLC0415 - an extra
    except ImportError as error:
        needs = "sending health events to NVSentinel needs an extra: pip install 'fleetwright[nvsentinel]'"
        raise UnusableSourceError(needs) from error
    if not socket.startswith("unix:"):
        raise UnusableSourceError(f"the platform connector must be a Unix socket, unix:///PATH, got {socket!r}")
    return NvsentinelOutlet(channel=grpc.aio.insecure_channel(socket))


def messages_of(event: HealthEvent) -> tuple[HealthEventMessage, ...]:
    healthy = _message(event, text="in service", is_healthy=True)
    text = "cordoned by an operator" if event.diagnosis is None else event.diagnosis.reason
    match event.state:
        case HealthState.HEALTHY:
            return (healthy,)
        case HealthState.DIAGNOSED:
            return healthy, _message(event, text=text, strategy=ProcessingStrategy.STORE_ONLY)
        case HealthState.OUT_OF_SERVICE:
            return (_message(event, text=text, is_fatal=True),)


def _message(
    event: HealthEvent,
    *,
    text: str,
    is_healthy: bool = False,
    is_fatal: bool = False,
    strategy: ProcessingStrategy = ProcessingStrategy.EXECUTE_REMEDIATION,
) -> HealthEventMessage:
    node, found = event.node or "", event.diagnosis if not is_healthy else None
    return HealthEventMessage(
        agent=AGENT,
        component_class="Node",
        check_name=CHECK_NAME,
        node_name=node,
        message=text,
        is_fatal=is_fatal,
        is_healthy=is_healthy,
        recommended_action=RecommendedAction.CONTACT_SUPPORT if is_fatal else RecommendedAction.NONE,
        processing_strategy=strategy,
        generated_at=event.at,
        error_codes=(found.fault.value,) if found is not None else (),
        entities=() if is_healthy else _entities(node, found),
        metadata={"eventId": event.id} | ({"diagnosisId": found.id, "job": found.job} if found is not None else {}),
    )


def _entities(node: str, found: EventDiagnosis | None) -> list[tuple[str, str]]:
    is_link = found is not None and found.scope is Scope.LINK and found.peer is not None
    return [("Node", node), *([("Link", f"{node}/{found.peer}")] if is_link and found is not None else [])]
