"""HTTP routes for caps, telemetry and metrics of one node's GPUs."""

from fastapi import APIRouter, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from deploy.node_agent.gpu.errors import OutOfRangeError
from deploy.node_agent.gpu.interface import NO_CAPS, Caps
from deploy.node_agent.gpu.node import GUARD, GpuNode
from deploy.node_agent.gpu.reporting import GpuMetrics, report_of
from deploy.node_agent.schemas import CAPS_PATH, GPUS_PATH, PHASE_PATH, CapsRequest, NodeReport, PhaseRequest


def caps_routes(node: GpuNode, *, server: str) -> APIRouter:
    """Return the routes of an agent with GPUs; the including application checks the token."""
    router = APIRouter()
    registry = CollectorRegistry()
    registry.register(GpuMetrics(node, server=server))

    @router.get(GPUS_PATH)
    def gpus() -> NodeReport:
        return report_of(node, server=server)

    @router.put(CAPS_PATH)
    def hold(body: CapsRequest) -> NodeReport:
        caps = Caps(body.power_limit_w, body.clock_mhz)
        if caps == NO_CAPS and body.clock_share is None:
            raise OutOfRangeError("power_limit_w, clock_mhz, clock_share: at least one is needed; DELETE releases")
        if body.holder == GUARD:
            raise OutOfRangeError(f"holder: {GUARD!r} is reserved for /v1/clocks")
        node.cap_controller.request(
            body.holder,
            caps,
            share=body.clock_share,
            uuids=body.gpus,
            until_s=node.now_s() + body.lease_s,
            on_lapse=body.on_lapse,
        )
        node.wake()
        return report_of(node, server=server)

    @router.delete(CAPS_PATH + "/{holder}")
    def release(holder: str) -> NodeReport:
        if holder == GUARD or not node.cap_controller.release(holder):
            raise HTTPException(404, f"{holder!r} has no caps here")
        node.wake()
        return report_of(node, server=server)

    @router.put(PHASE_PATH)
    def phase(body: PhaseRequest) -> NodeReport:
        node.phases.report(body.worker, body.phase.phase, until_s=node.now_s() + body.lease_s)
        node.wake()
        return report_of(node, server=server)

    @router.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router
