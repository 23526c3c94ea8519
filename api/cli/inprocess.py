"""The controller inside the service's process, for a laptop: it speaks to the API as any other, without a socket."""

import secrets

import httpx
from fastapi import FastAPI

from api.client import AsyncFleetwright
from api.schemas.tokens import Scope
from api.server import Principal, StaticToken
from deploy.clock import Clock
from deploy.controller import Controller
from deploy.leadership import Leadership, LeaseSettings, new_holder
from deploy.metrics import ControllerMetrics
from deploy.ray_serve import ray_serve_actuators

ACTOR = "system:controller"
URL = "http://localhost"  # never resolved: the transport calls the application itself


def controller_token() -> StaticToken:
    """A token that is good in this process only, and for what the controller needs."""
    principal = Principal(actor=ACTOR, scopes=frozenset({Scope.READ, Scope.OPERATE}), rate_limited=False)
    return StaticToken(token=f"fw_controller00_{secrets.token_urlsafe(32)}", principal=principal)


async def run_controller(app: FastAPI, token: StaticToken) -> None:
    """Run rounds until cancelled."""
    metrics = ControllerMetrics(app.state.service.metrics.registry)
    async with (
        AsyncFleetwright(URL, token=token.token, transport=httpx.ASGITransport(app)) as api,
        httpx.AsyncClient() as http,
    ):
        leadership = Leadership(api=api, settings=LeaseSettings(holder=new_holder()), clock=Clock())
        await Controller(api=api, actuators=ray_serve_actuators(http), metrics=metrics, leadership=leadership).run()
