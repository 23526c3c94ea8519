"""A controller killed at any request to the API or the target: the next controller reaches the same state."""

from dataclasses import dataclass

import httpx
import pytest

from api.client import AsyncClient
from api.schemas.targets import Phase
from api.schemas.tokens import TokenScope
from tests.deploy.actuators.serve_double import ServeDouble
from tests.deploy.controller.harness import Harness, app
from tests.testbed.service import TOKENS
from tests.testbed.soak import SOAK

pytestmark = pytest.mark.anyio
STRIDE = 2 if SOAK else 9
EFFECTIVE = [("on-B200", 1), ("on-B200", 2), ("on-L4", 0)]


class KilledError(BaseException):
    """Stands for the end of the controller's process."""


@dataclass
class KillSwitch:
    """Kills the controller at its `nth` request, before the request is sent or before the response is read."""

    nth: int | None = None
    after: bool = False
    requests: int = 0

    def wrap(self, inner: httpx.AsyncBaseTransport) -> httpx.MockTransport:
        """The transport with this kill switch in it."""

        async def answer(request: httpx.Request) -> httpx.Response:
            mine, self.requests = self.requests == self.nth, self.requests + 1
            if mine and not self.after:
                raise KilledError
            response = await inner.handle_async_request(request)
            await response.aread()
            if mine:
                raise KilledError
            return response

        return httpx.MockTransport(answer)


async def run(harness: Harness, serve: ServeDouble, switch: KillSwitch, *, rounds: int) -> None:
    """Reconcile `rounds` times with one controller through the kill switch; requested replicas start after each."""
    api_transport = switch.wrap(harness.api._http._transport)
    serve_transport = switch.wrap(httpx.MockTransport(harness._route))
    async with (
        AsyncClient("http://localhost", token=TOKENS[TokenScope.ADMIN], transport=api_transport) as api,
        httpx.AsyncClient(transport=serve_transport) as http,
    ):
        controller = harness.controller(api=api, http=http)
        for _ in range(rounds):
            await harness.round(controller)
    serve.settle()


def effective(serve: ServeDouble) -> list[tuple[str, int]]:
    """The writes that changed something."""
    counts, found = {"on-B200": 0, "on-L4": 1}, []
    for name, count in serve.writes:
        if counts[name] != count:
            found.append((name, count))
        counts[name] = count
    return found


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("first", range(STRIDE if SOAK else 1))
async def test_a_controller_killed_at_any_request_is_continued_to_the_same_state(
    harness: Harness, first: int, *, after: bool
) -> None:
    """Kill at the `first` request and at each `STRIDE`th after."""
    at, undisturbed = first, None
    while undisturbed is None or at < undisturbed:
        serve, name = app(B200=0, L4=1), f"t{at}"
        plan_id = await harness.plan({"B200": 2})
        await harness.register(name, serve, plan_id=plan_id, max_step=1, max_step_per_window=100)
        if undisturbed is None:
            switch = KillSwitch()
            await run(harness, serve, switch, rounds=5)
            undisturbed = switch.requests
            assert serve.writes == EFFECTIVE
        else:
            with pytest.raises(KilledError):
                await run(harness, serve, KillSwitch(nth=at, after=after), rounds=6)
            serve.settle()
            await run(harness, serve, KillSwitch(), rounds=5)
            at += STRIDE
        status = await harness.status(name)
        assert (status.phase, effective(serve), serve.counts) == (Phase.APPLIED, EFFECTIVE, {"on-B200": 2, "on-L4": 0})
        assert status.state is not None
        assert status.state.verified_plan_id == plan_id
        assert sum(entry.replicas for entry in status.state.spent) >= len(EFFECTIVE), "a write was not counted"
        await harness.api.delete_target(name, if_match=(await harness.api.get_target(name)).etag)
