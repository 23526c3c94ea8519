"""Which hosts the controller calls for targets, and what it reads of their answers."""

import gzip
import socket
from collections.abc import Iterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from api.schemas.target_hosts import CLUSTER_HOSTS, LOOPBACK_HOSTS, AllowedHosts, split_hosts
from deploy.common.target_http import MAX_ANSWER_BYTES, TargetTransport, target_client
from fleet.errors import DocumentError
from tests.testbed.asgi import serving

pytestmark = pytest.mark.anyio
EVERYTHING = ("0.0.0.0/0", "::/0")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    async def answer(request: Request) -> Response:
        size = int(request.query_params.get("size", "3"))
        if request.query_params.get("gzip"):
            return Response(gzip.compress(b"x" * size), headers={"Content-Encoding": "gzip"})
        return PlainTextResponse("x" * size, headers={"X-Host": request.headers["host"]})

    def redirect(_request: Request) -> Response:
        return RedirectResponse("http://169.254.169.254/latest/meta-data/")

    with serving(Starlette(routes=[Route("/", answer), Route("/away", redirect)])) as address:
        yield address


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("169.254.169.254", "169.254.169.254"),
        ("metadata.google.internal", "169.254.169.254"),
        ("fe80::1", "fe80::1"),
        ("::ffff:169.254.169.254", "::ffff:169.254.169.254"),
        ("64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9fe"),
        ("2002:a9fe:a9fe::1", "2002:a9fe:a9fe::1"),
        ("fd00:ec2::254", "fd00:ec2::254"),
        ("100.100.100.200", "100.100.100.200"),
        ("0.0.0.0", "0.0.0.0"),
        ("::", "::"),
        ("224.0.0.1", "224.0.0.1"),
        ("255.255.255.255", "255.255.255.255"),
    ],
)
def test_some_addresses_are_called_for_no_target(host: str, address: str) -> None:
    allowed = AllowedHosts.parse([*EVERYTHING, "metadata.google.internal"])
    assert allowed.refusal("ray-head", ["10.0.0.1"]) is None
    refusal = allowed.refusal(host, ["10.0.0.1", address])
    assert refusal is not None
    assert "no target may be there" in refusal


@pytest.mark.parametrize(
    ("entries", "host", "address", "called"),
    [
        (LOOPBACK_HOSTS, "localhost", "127.0.0.1", True),
        (LOOPBACK_HOSTS, "127.0.0.7", "127.0.0.7", True),
        (LOOPBACK_HOSTS, "::1", "::1", True),
        (LOOPBACK_HOSTS, "localhost", "10.0.0.1", True),
        (LOOPBACK_HOSTS, "10.0.0.1", "10.0.0.1", False),
        (LOOPBACK_HOSTS, "ray.svc", "10.0.0.1", False),
        (CLUSTER_HOSTS, "ray-head.ml.svc", "10.0.0.1", True),
        (CLUSTER_HOSTS, "RAY-HEAD.ml.svc.cluster.local.", "10.0.0.1", True),
        (CLUSTER_HOSTS, "evilsvc", "10.0.0.1", False),
        (["ray"], "ray", "10.0.0.1", True),
        (["ray"], "ray", "127.0.0.1", False),  # a name does not open loopback
        (["ray"], "ray.evil", "10.0.0.1", False),
        (["10.1.0.0/16"], "any", "10.1.2.3", True),
        (["10.1.0.0/16"], "any", "10.2.0.1", False),
        (["10.1.0.0/16"], "any", "::ffff:10.1.2.3", True),
        ([], "any", "10.1.2.3", False),
    ],
)
def test_a_host_is_called_when_its_name_or_address_is_listed(
    entries: list[str], host: str, address: str, *, called: bool
) -> None:
    assert (AllowedHosts.parse(entries).refusal(host, [address]) is None) is called


def test_every_address_of_a_name_counts() -> None:
    assert AllowedHosts.parse(["10.0.0.0/8"]).refusal("any", ["10.0.0.1", "192.168.0.1"]) is not None
    assert AllowedHosts.parse(["any"]).refusal("any", []) == "any has no address"


@pytest.mark.parametrize("entry", ["", "http://ray", "10.0.0.0/33", "a b", "*", "10.1.2.3/8"])
def test_a_wrong_entry_is_named(entry: str) -> None:
    with pytest.raises(DocumentError, match="allowed: a host name, a suffix"):
        AllowedHosts.parse([entry])


def test_the_environment_separates_entries_by_commas_or_spaces() -> None:
    assert split_hosts(" a, .svc  10.0.0.0/8,") == ("a", ".svc", "10.0.0.0/8")
    assert split_hosts("  ") == ()


async def test_an_allowed_host_is_called_by_its_checked_address(url: str) -> None:
    port = httpx.URL(url).port
    resolved: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.9", "127.0.0.1"]  # nobody listens on the first

    transport = TargetTransport(AllowedHosts.parse(["127.0.0.0/8"]), resolve=resolve)
    async with httpx.AsyncClient(transport=transport) as client:
        answer = await client.get(f"http://ray-head:{port}/")
    assert (answer.text, answer.headers["x-host"]) == ("xxx", f"ray-head:{port}")
    assert resolved == ["ray-head"]


async def test_a_name_that_resolves_to_a_forbidden_address_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_args: object, **_options: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with target_client(AllowedHosts.parse(["rebound.example"])) as client:
        with pytest.raises(httpx.RequestError, match="no target may be there"):
            await client.get("http://rebound.example/")


async def test_a_redirect_is_not_followed(url: str) -> None:
    async with target_client(AllowedHosts.parse(LOOPBACK_HOSTS)) as client:
        assert (await client.get(f"{url}/away")).status_code == 307


async def test_a_large_or_compressed_answer_is_cut(url: str) -> None:
    async with target_client(AllowedHosts.parse(LOOPBACK_HOSTS)) as client:
        assert len((await client.get(url, params={"size": MAX_ANSWER_BYTES})).content) == MAX_ANSWER_BYTES
        with pytest.raises(httpx.ReadError, match="more than 1,000,000 bytes"):
            await client.get(url, params={"size": 20 * MAX_ANSWER_BYTES})
        with pytest.raises(httpx.DecodingError, match="Content-Encoding gzip"):
            await client.get(url, params={"size": 20 * MAX_ANSWER_BYTES, "gzip": "1"})
