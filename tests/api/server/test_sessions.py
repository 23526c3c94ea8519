"""Sessions of browsers: a cookie in place of a token, for pages of the same origin only, writes with a CSRF token."""

from datetime import UTC, datetime
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest

from api.schemas.tokens import TokenScope
from api.server.sessions import COOKIE, CSRF_HEADER
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio

EIGHT_HOURS_S = 8 * 3600
FREEZE = {"frozen": True, "reason": "a test"}
SAME = {"Sec-Fetch-Site": "same-origin"}


async def token(service: RunningService, *scopes: str, **body: Any) -> dict[str, Any]:
    async with service.client() as admin:
        made = await admin.post("/v1/tokens", json={"name": "ada", "scopes": scopes, **body})
    assert made.status_code == 201
    found: dict[str, Any] = made.json()
    return found


async def opened(service: RunningService, secret: str, **headers: str) -> httpx.Response:
    async with service.client(None) as client:
        return await client.post("/v1/session", headers={"Authorization": f"Bearer {secret}", **headers})


def cookie_of(response: httpx.Response) -> str:
    found = SimpleCookie(response.headers["set-cookie"])
    return found[COOKIE].value


async def send(
    service: RunningService,
    method: str,
    path: str,
    *,
    cookie: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    async with service.client(None) as client:
        sent = {"Cookie": f"{COOKIE}={cookie}", **(SAME if headers is None else headers)}
        return await client.request(method, path, json=body, headers=sent)


async def freeze(service: RunningService, *, cookie: str, headers: dict[str, str]) -> httpx.Response:
    return await send(service, "PUT", "/v1/freeze", cookie=cookie, body=FREEZE, headers={"If-Match": "*", **headers})


async def test_a_session_acts_for_the_token_that_opened_it(service: RunningService) -> None:
    made = await token(service, "read", "operate")
    answer = await opened(service, made["secret"])
    assert answer.status_code == 201
    info = answer.json()
    assert (info["actor"], info["name"], info["scopes"]) == (f"token:{made['info']['id']}", "ada", ["operate", "read"])
    cookie = cookie_of(answer)
    assert made["secret"] not in answer.headers["set-cookie"] + answer.text
    assert cookie not in answer.text

    read = await send(service, "GET", "/v1/session", cookie=cookie)
    assert read.json() == info
    written = await freeze(service, cookie=cookie, headers={**SAME, CSRF_HEADER: info["csrf_token"]})
    assert written.status_code == 200
    async with service.client() as admin:
        entries = (await admin.get("/v1/audit")).json()["items"]
    assert [(entry["action"], entry["actor"]) for entry in entries[:2]] == [
        ("fleet.frozen", info["actor"]),
        ("session.opened", info["actor"]),
    ]


@pytest.mark.parametrize("origin", [None, "http://fleet.example", "https://fleet.example"])
async def test_scripts_cannot_read_the_cookie_and_other_sites_do_not_send_it(
    sqlite_service: RunningService, origin: str | None
) -> None:
    headers = {"Origin": origin} if origin is not None else {}
    made = await token(sqlite_service, "read")
    (cookie,) = SimpleCookie((await opened(sqlite_service, made["secret"], **headers)).headers["set-cookie"]).values()
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
    assert bool(cookie["secure"]) is (origin == "https://fleet.example")
    assert int(cookie["max-age"]) == EIGHT_HOURS_S


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),  # neither header: not from a page of this origin
        ({"Sec-Fetch-Site": "cross-site"}, 401),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Origin": "http://localhost:1"}, 401),
        ({"Origin": "http://[broken"}, 401),
        ({"Origin": "null"}, 401),
        (SAME, 403),  # from this origin, without the CSRF token
        ({"Origin": "http://localhost"}, 403),
    ],
)
async def test_a_write_needs_the_same_origin_and_the_csrf_token(
    sqlite_service: RunningService, headers: dict[str, str], status: int
) -> None:
    made = await token(sqlite_service, "read", "operate")
    answer = await opened(sqlite_service, made["secret"])
    cookie, csrf = cookie_of(answer), answer.json()["csrf_token"]
    refused = await freeze(sqlite_service, cookie=cookie, headers=headers)
    assert refused.status_code == status
    if status == 403:
        assert refused.json()["type"] == "urn:fleetwright:problem:csrf-token"
        for wrong in ("", "x", "é", csrf[:-1], csrf.upper()):
            given = {**headers, CSRF_HEADER: wrong.encode("latin-1").decode("latin-1")}
            async with sqlite_service.client(None) as client:
                raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
                raw += [(b"cookie", f"{COOKIE}={cookie}".encode()), (b"if-match", b"*")]
                assert (await client.put("/v1/freeze", json=FREEZE, headers=raw)).status_code == 403
        assert (await freeze(sqlite_service, cookie=cookie, headers={**headers, CSRF_HEADER: csrf})).status_code == 200
    else:
        assert (await freeze(sqlite_service, cookie=cookie, headers={**headers, CSRF_HEADER: csrf})).status_code == 401


async def test_a_read_of_another_sites_page_gets_nothing(sqlite_service: RunningService) -> None:
    made = await token(sqlite_service, "read")
    cookie = cookie_of(await opened(sqlite_service, made["secret"]))
    for headers, status in (({"Sec-Fetch-Site": "cross-site"}, 401), ({"Sec-Fetch-Site": "none"}, 200), ({}, 200)):
        assert (await send(sqlite_service, "GET", "/v1/gpus", cookie=cookie, headers=headers)).status_code == status


async def test_a_session_has_no_more_rights_than_its_token(sqlite_service: RunningService) -> None:
    made = await token(sqlite_service, "read")
    answer = await opened(sqlite_service, made["secret"])
    csrf = {**SAME, CSRF_HEADER: answer.json()["csrf_token"]}
    refused = await freeze(sqlite_service, cookie=cookie_of(answer), headers=csrf)
    assert refused.status_code == 403
    assert "scope 'operate' is needed" in refused.json()["detail"]


@pytest.mark.parametrize("how", ["expiry", "revocation", "sign-out", "expiry of the token"])
async def test_a_session_ends(service: RunningService, how: str) -> None:
    lifetime = {"expires_in_s": 600} if how == "expiry of the token" else {}
    made = await token(service, "read", **lifetime)
    answer = await opened(service, made["secret"])
    cookie = cookie_of(answer)
    assert (await send(service, "GET", "/v1/gpus", cookie=cookie)).status_code == 200
    if how == "expiry":
        service.clock.advance(EIGHT_HOURS_S - 1)
        assert (await send(service, "GET", "/v1/gpus", cookie=cookie)).status_code == 200
        service.clock.advance(1)
    elif how == "expiry of the token":
        expires_at = datetime.fromisoformat(answer.json()["expires_at"])
        assert (expires_at - service.clock.now().astimezone(UTC)).total_seconds() == 600
        service.clock.advance(600)
    elif how == "revocation":
        async with service.client() as admin:
            await admin.delete(f"/v1/tokens/{made['info']['id']}")
    else:
        refused = await send(service, "DELETE", "/v1/session", cookie=cookie)
        assert refused.status_code == 403
        csrf = {**SAME, CSRF_HEADER: answer.json()["csrf_token"]}
        ended = await send(service, "DELETE", "/v1/session", cookie=cookie, headers=csrf)
        assert ended.status_code == 204
        assert "Max-Age=0" in ended.headers["set-cookie"]
    assert (await send(service, "GET", "/v1/gpus", cookie=cookie)).status_code == 401
    assert (await send(service, "GET", "/v1/session", cookie=cookie)).status_code == 401


async def test_session_secrets_and_tokens_do_not_replace_each_other(sqlite_service: RunningService) -> None:
    made = await token(sqlite_service, "read")
    cookie = cookie_of(await opened(sqlite_service, made["secret"]))
    assert (await send(sqlite_service, "GET", "/v1/gpus", cookie=made["secret"])).status_code == 401
    async with sqlite_service.client(None) as client:
        bearer = await client.get("/v1/gpus", headers={"Authorization": f"Bearer {cookie}"})
    assert bearer.status_code == 401
    assert (await opened(sqlite_service, cookie)).status_code == 401


async def test_a_token_goes_before_a_cookie(sqlite_service: RunningService) -> None:
    made = await token(sqlite_service, "read")
    cookie = cookie_of(await opened(sqlite_service, made["secret"]))
    async with sqlite_service.client(TokenScope.OPERATE) as client:
        answer = await client.put(
            "/v1/freeze", json=FREEZE, headers={"If-Match": "*", "Cookie": f"{COOKIE}={cookie}", **SAME}
        )
    assert answer.status_code == 200


async def test_only_a_stored_token_opens_a_session(start_service: StartService, sqlite_url: str) -> None:
    async with start_service(sqlite_url, insecure_no_auth=True) as service:
        async with service.client(None) as client:
            assert (await client.post("/v1/session")).status_code == 422
            assert (await client.get("/v1/session")).json() == {
                "actor": "anonymous",
                "name": None,
                "scopes": ["admin"],
                "project": None,
                "csrf_token": None,
                "expires_at": None,
            }
        async with service.client(TokenScope.ADMIN) as client:  # a token of this process only
            refused = await client.post("/v1/session")
            assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "header.Authorization")


async def test_an_ended_session_may_still_read_where_everybody_may(
    start_service: StartService, sqlite_url: str
) -> None:
    async with start_service(sqlite_url, anonymous_read=True) as service:
        assert (await send(service, "GET", "/v1/gpus", cookie="fw_ended")).status_code == 200
        assert (await send(service, "GET", "/v1/session", cookie="fw_ended")).json()["scopes"] == ["read"]
        assert (await freeze(service, cookie="fw_ended", headers=SAME)).status_code == 401


async def test_one_token_opens_a_limited_number_of_sessions_at_once(sqlite_service: RunningService) -> None:
    made = await token(sqlite_service, "read")
    answers = [await opened(sqlite_service, made["secret"]) for _ in range(21)]
    assert [answer.status_code for answer in answers] == [201] * 20 + [429]
    assert answers[-1].headers["retry-after"] == "2"
    other = await token(sqlite_service, "read")
    assert (await opened(sqlite_service, other["secret"])).status_code == 201


async def test_a_list_of_tokens_names_sessions_and_an_admin_can_end_them(sqlite_service: RunningService) -> None:
    made = await token(sqlite_service, "read")
    cookie = cookie_of(await opened(sqlite_service, made["secret"]))
    async with sqlite_service.client() as admin:
        items = (await admin.get("/v1/tokens")).json()["items"]
        (session,) = [item for item in items if item["parent"] == made["info"]["id"]]
        assert (await admin.delete(f"/v1/tokens/{session['id']}")).status_code == 204
    assert (await send(sqlite_service, "GET", "/v1/gpus", cookie=cookie)).status_code == 401
    async with sqlite_service.client(None) as client:
        token_itself = await client.get("/v1/gpus", headers={"Authorization": f"Bearer {made['secret']}"})
    assert token_itself.status_code == 200
