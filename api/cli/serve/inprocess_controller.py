"""Runs the controller inside the service's process, for a laptop: it calls the API without a socket."""

import secrets

from fastapi import FastAPI

from api.client import AsyncClient, InProcessTransport
from api.schemas.target_hosts import LOOPBACK_HOSTS, AllowedHosts, split_hosts
from api.schemas.tokens import TokenScope
from api.server import Principal, StaticToken
from deploy.actuators.registry import reachable_actuators
from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseSettings, new_holder
from deploy.common.target_http import target_client
from deploy.controller.controller import Controller
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.prometheus_health import prometheus_health
from deploy.controller.reconcile import ControllerSettings
from deploy.planning_loop.process import folders_from_environment, planning_loops

ACTOR = "system:controller"
URL = "http://localhost"  # never resolved: the transport calls the application itself


def controller_token() -> StaticToken:
    """Create a token for this process only, with the scopes of the controller."""
    principal = Principal(
        actor=ACTOR, scopes=frozenset({TokenScope.READ, TokenScope.PLAN, TokenScope.REPORT}), rate_limited=False
    )
    return StaticToken(token=f"fw_controller00_{secrets.token_urlsafe(32)}", principal=principal)


async def run_controller(app: FastAPI, token: StaticToken, *, settings: ControllerSettings | None = None) -> None:
    """Reconcile until cancelled."""
    allowed = AllowedHosts.parse(split_hosts(app.state.service.settings.target_hosts) or LOOPBACK_HOSTS)
    metrics, clock = ControllerMetrics(app.state.service.metrics.registry), Clock()
    async with (
        AsyncClient(URL, token=token.token, transport=InProcessTransport(app)) as api,
        target_client(allowed) as http,
        reachable_actuators(http) as actuators,
        prometheus_health(allowed=allowed, now=clock.now) as health,
    ):
        leadership = Leadership(api=api, settings=LeaseSettings(holder=new_holder()), clock=clock)
        async with planning_loops(
            api=api,
            leadership=leadership,
            registry=app.state.service.metrics.registry,
            allowed=allowed,
            clock=clock,
            folders=folders_from_environment(),
        ) as planning:
            controller = Controller(
                api=api,
                actuators=actuators,
                http=http,
                health=health,
                metrics=metrics,
                leadership=leadership,
                settings=settings,
                beside=[planning.advance],
            )
            await controller.run()
