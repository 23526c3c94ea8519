"""Tokens of an OpenID Connect issuer: a local one with real keys."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from api.schemas.tokens import TokenScope
from api.server import Settings
from tests.api.server.test_targets import CREATE, SPEC
from tests.testbed.asgi import serving
from tests.testbed.service import RunningService, StartService, SteppedClock

pytestmark = pytest.mark.anyio
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SMALL_RSA = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - to be refused
EC = ec.generate_private_key(ec.SECP256R1())
GROUPS = {
    "sre": {"scopes": ["read", "operate"]},
    "auditors": {"scopes": ["audit"]},
    "team-a": {"scopes": ["read", "plan", "operate"], "project": "team-a"},
    "team-b": {"scopes": ["read"], "project": "team-b"},
}


def public(key: Any, kid: str) -> dict[str, Any]:
    algorithm = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}


@dataclass
class Issuer:
    url: str = ""
    keys: list[Any] = field(default_factory=lambda: [public(RSA, "r1"), public(EC, "e1"), public(SMALL_RSA, "s1")])
    fetches: int = 0
    answer: Response | None = None  # in place of the keys

    def describe(self, _request: Request) -> Response:
        return JSONResponse({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    def list_keys(self, _request: Request) -> Response:
        self.fetches += 1
        return self.answer or JSONResponse({"keys": self.keys})

    def token(self, key: Any = RSA, kid: str = "r1", alg: str = "RS256", **claims: Any) -> str:
        at_s = SteppedClock().now().timestamp()
        whole = {"iss": self.url, "aud": "fleetwright", "sub": "ada", "exp": at_s + 300, "groups": ["sre"]} | claims
        given = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(given, key, algorithm=alg, headers={"kid": kid})


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    routes = [Route("/.well-known/openid-configuration", issuer.describe), Route("/keys", issuer.list_keys)]
    with serving(Starlette(routes=routes)) as issuer.url:
        yield issuer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


def settings(issuer: Issuer) -> Mapping[str, Any]:
    return {"oidc_issuer": issuer.url, "oidc_audience": "fleetwright", "oidc_groups": GROUPS}


async def status(running: RunningService, token: str, path: str = "/v1/gpus", **headers: str) -> int:
    async with running.client(None) as client:
        answer = await client.get(path, headers={"Authorization": f"Bearer {token}", **headers})
    return answer.status_code


async def test_groups_give_scopes_and_the_subject_is_the_actor(
    start_service: StartService, sqlite_url: str, issuer: Issuer
) -> None:
    async with start_service(sqlite_url, **settings(issuer)) as running, running.client(None) as client:
        for token in (issuer.token(), issuer.token(EC, "e1", "ES256"), issuer.token(aud=["x", "fleetwright"])):
            assert await status(running, token) == 200
        bearer = {"Authorization": f"Bearer {issuer.token()}"}
        assert (await client.put("/v1/targets/a", json=SPEC, headers=bearer | CREATE)).status_code == 201
        assert await status(running, issuer.token(), "/v1/audit") == 403
        audit = {"Authorization": f"Bearer {issuer.token(groups=['auditors', 'unknown'])}"}
        entries = (await client.get("/v1/audit", headers=audit)).json()["items"]
        assert await status(running, issuer.token(groups=[])) == 403
        assert await status(running, issuer.token(groups=None)) == 403
    assert entries[0]["actor"] == "oidc:ada"
    assert issuer.fetches == 1


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": None},
        {"exp": SteppedClock().now().timestamp() - 61},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": SteppedClock().now().timestamp() + 61},
        {"sub": None},
        {"sub": "a\x00b"},
        {"sub": "a" * 191},
        {"key": OTHER_RSA},
        {"key": SMALL_RSA, "kid": "s1"},
        {"kid": "unknown"},
        {"key": "x" * 32, "alg": "HS256"},
        {"key": EC, "alg": "ES256"},
        {"groups": ["x" * 100] * 200},
    ],
)
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
async def test_a_token_that_does_not_hold_is_unauthorized(
    start_service: StartService, sqlite_url: str, issuer: Issuer, change: dict[str, Any]
) -> None:
    async with start_service(sqlite_url, **settings(issuer)) as running:
        assert await status(running, issuer.token(**change)) == 401
        unsigned = issuer.token().rpartition(".")[0] + "."
        assert await status(running, unsigned) == 401
        assert await status(running, "a.b.c") == 401
        assert await status(running, jwt.encode({"sub": "ada"}, "", algorithm="none", headers={"kid": "r1"})) == 401


async def test_clocks_may_differ_by_a_minute(start_service: StartService, sqlite_url: str, issuer: Issuer) -> None:
    async with start_service(sqlite_url, **settings(issuer)) as running:
        at_s = running.clock.now().timestamp()
        assert await status(running, issuer.token(exp=at_s - 59, nbf=at_s + 59)) == 200


async def test_a_new_key_is_fetched_at_most_every_ten_seconds(
    start_service: StartService, sqlite_url: str, issuer: Issuer
) -> None:
    async with start_service(sqlite_url, **settings(issuer)) as running:
        assert await status(running, issuer.token()) == 200
        issuer.keys = [public(OTHER_RSA, "r2")]
        rotated = issuer.token(OTHER_RSA, "r2")
        assert await status(running, rotated) == 401, "the keys are a moment old"
        running.clock.advance(10.0)
        assert await status(running, rotated) == 200
        assert await status(running, issuer.token()) == 401, "the issuer has withdrawn this key"
        for number in range(20):
            assert await status(running, issuer.token(kid=f"guess-{number}")) == 401
    assert issuer.fetches == 2


@pytest.mark.parametrize(
    "answer",
    [
        Response(status_code=500),
        Response("no"),
        Response("[1]"),
        Response(b'{"keys": "' + b"x" * 1_100_000 + b'"}'),
        JSONResponse({"keys": [7, {"kid": "r1", "kty": "RSA"}, {"kty": "oct", "kid": "r1", "k": "eA"}]}),
        Response(status_code=302, headers={"Location": "http://127.0.0.1:1/"}),
    ],
)
async def test_known_keys_last_while_the_issuer_fails(
    start_service: StartService, sqlite_url: str, issuer: Issuer, answer: Response
) -> None:
    working, issuer.answer = issuer.answer, answer
    async with start_service(sqlite_url, **settings(issuer)) as running:
        assert await status(running, issuer.token()) == 503
        issuer.answer = working
        running.clock.advance(10.0)
        assert await status(running, issuer.token()) == 200
        issuer.answer = answer
        running.clock.advance(200.0)
        assert await status(running, issuer.token(kid="other")) == 401
        assert await status(running, issuer.token()) == 200


async def test_the_chosen_project_decides_between_the_groups(
    start_service: StartService, sqlite_url: str, issuer: Issuer
) -> None:
    async with start_service(sqlite_url, **settings(issuer)) as running:
        async with running.client(TokenScope.ADMIN) as admin:
            for name in ("team-a", "team-b"):
                await admin.put(f"/v1/projects/{name}", json={}, headers=CREATE)
        both = issuer.token(groups=["team-b", "team-a"])
        async with running.client(None) as client:
            made = {}
            for project in ("team-a", "team-b", "default"):
                headers = {"Authorization": f"Bearer {both}", "Fleetwright-Project": project}
                answer = await client.put(f"/v1/targets/of-{project}", json=SPEC, headers=headers | CREATE)
                made[project] = answer.status_code
        assert made == {"team-a": 201, "team-b": 403, "default": 403}
        of_fleet = issuer.token(groups=["team-b", "sre"])
        assert await status(running, of_fleet, "/v1/targets/of-team-a") == 200
        assert await status(running, issuer.token(groups=["team-b"]), "/v1/targets/of-team-a") == 404


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"oidc_issuer": "http://login.example"}, "must be an https URL"),
        ({"oidc_issuer": "login.example"}, "must be an https URL"),
        ({"oidc_audience": ""}, "oidc_audience: is required"),
        ({"oidc_groups": {"a": {"scopes": ["all"]}}}, "oidc_groups"),
    ],
)
def test_wrong_settings_stop_the_start(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Settings(**{"oidc_issuer": "https://login.example", "oidc_audience": "fleetwright"} | change)
