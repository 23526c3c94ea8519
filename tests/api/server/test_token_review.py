"""Which tokens are reviewed, and how often; `tests/cluster` has a real API server review them."""

import asyncio
import base64
import json
from typing import Any

import pytest
from pydantic import ValidationError

from api.server import Settings
from api.server import token_review as module
from api.server.problems import ProblemError
from api.server.token_review import TokenReviewer
from tests.testbed.service import SteppedClock

pytestmark = pytest.mark.anyio


def token(**claims: Any) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"


class Reviewer(TokenReviewer):
    """Holds reviews until they may end, and counts them."""

    def __init__(self, clock: SteppedClock) -> None:
        grants = {"system:serviceaccounts": {"scopes": ["read"]}}
        super().__init__(
            Settings.model_validate({"kubernetes_tokens": True, "kubernetes_grants": grants}),
            monotonic_s=clock.monotonic_s,
        )
        self.may_end = asyncio.Event()
        self.reviews = 0

    async def _review(self, _token: str) -> Any:
        self.reviews += 1
        await self.may_end.wait()
        return module._Account("system:serviceaccount:ml:a", frozenset({"system:serviceaccounts"}))


@pytest.mark.parametrize(
    ("given", "addressed"),
    [
        (token(aud="fleetwright"), True),
        (token(aud=["other", "fleetwright"]), True),
        (token(aud=["https://kubernetes.default.svc"]), False),
        (token(), False),
        ("a.b.c", False),
        ("e30.W10.c2ln", False),  # a list of claims
        (f"e30.{'A' * 20_000}.c2ln", False),
    ],
)
async def test_only_a_token_for_this_service_is_reviewed(given: str, addressed: bool) -> None:  # noqa: FBT001
    assert Reviewer(SteppedClock()).is_addressed(given) is addressed


async def test_requests_with_one_token_share_a_review_which_is_kept_for_a_while() -> None:
    clock = SteppedClock()
    reviewer = Reviewer(clock)
    callers = [asyncio.create_task(reviewer.identify("t", project=None)) for _ in range(5)]
    await asyncio.sleep(0)
    reviewer.may_end.set()
    (found, *others) = await asyncio.gather(*callers)
    assert found is not None
    assert found[0] == "kubernetes:system:serviceaccount:ml:a"
    assert others == [found] * 4
    assert reviewer.reviews == 1
    clock.advance(module.KEPT_S - 1.0)
    await reviewer.identify("t", project=None)
    assert reviewer.reviews == 1
    clock.advance(2.0)
    await reviewer.identify("t", project=None)
    assert reviewer.reviews == 2


async def test_invented_tokens_cannot_queue_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    reviewer = Reviewer(SteppedClock())
    waiting = [asyncio.create_task(reviewer.identify(f"t{number}", project=None)) for number in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(ProblemError) as refused:
        await reviewer.identify("one more", project=None)
    assert refused.value.status == 503
    reviewer.may_end.set()
    assert all(await asyncio.gather(*waiting))
    assert await reviewer.identify("one more", project=None)
    await reviewer.close()


def test_the_api_server_is_reached_by_https_only() -> None:
    with pytest.raises(ValidationError, match="kubernetes_api_url: must be an https URL"):
        Settings(kubernetes_tokens=True, kubernetes_api_url="http://kubernetes.invalid")
