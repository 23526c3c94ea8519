"""The HTTP client for what targets name: dashboards, routers, replicas and Prometheus servers.

It resolves a host itself, checks every address, and connects to a checked address, so that a name cannot change between
the check and the connection.  It follows no redirect, and it cuts answers, which it requests without compression.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import httpx

from api.schemas.target_hosts import AllowedHosts

MAX_ANSWER_BYTES: Final = 1_000_000
RESOLVING_S: Final = 3.0
PORTS: Final = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class TargetTransport(httpx.AsyncBaseTransport):
    def __init__(
        self,
        allowed: AllowedHosts,
        *,
        resolve: Resolve = resolve,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed, self._resolve, self._max_answer_bytes = allowed, resolve, max_answer_bytes
        self._plain = httpx.AsyncHTTPTransport()
        # The connections are pooled by address; a kept one has the certificate of one of the names of the address.
        self._tls = httpx.AsyncHTTPTransport(
            verify=True if tls is None else tls, limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        addresses = await self._addresses(request, host)
        if (refusal := self._allowed.refusal(host, addresses)) is not None:
            raise httpx.UnsupportedProtocol(refusal, request=request)
        request.headers["Accept-Encoding"] = "identity"
        for address in addresses[:-1]:
            try:
                return await self._send(request, host, address)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue  # nothing was sent
        return await self._send(request, host, addresses[-1])

    async def aclose(self) -> None:
        await self._plain.aclose()
        await self._tls.aclose()

    async def _addresses(self, request: httpx.Request, host: str) -> list[str]:
        try:
            async with asyncio.timeout(RESOLVING_S):
                return await self._resolve(host, request.url.port or PORTS[request.url.scheme])
        except (OSError, UnicodeError, TimeoutError) as error:
            raise httpx.ConnectError(f"{host} does not resolve: {error}", request=request) from error

    async def _send(self, request: httpx.Request, host: str, address: str) -> httpx.Response:
        extensions = request.extensions if _is_address(host) else request.extensions | {"sni_hostname": host}
        checked = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions=extensions,
        )
        transport = self._tls if request.url.scheme == "https" else self._plain
        response = await transport.handle_async_request(checked)
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity" or not isinstance(response.stream, httpx.AsyncByteStream):
            await response.aclose()
            raise httpx.DecodingError(f"{host} answers with Content-Encoding {encoding}", request=request)
        response.stream = _CutStream(response.stream, host, self._max_answer_bytes)
        return response


class _CutStream(httpx.AsyncByteStream):
    def __init__(self, whole: httpx.AsyncByteStream, host: str, max_bytes: int) -> None:
        self._whole, self._host, self._max_bytes = whole, host, max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for part in self._whole:
            received += len(part)
            if received > self._max_bytes:
                raise httpx.ReadError(f"{self._host} answers with more than {self._max_bytes:,} bytes")
            yield part

    async def aclose(self) -> None:
        await self._whole.aclose()


def target_client(
    allowed: AllowedHosts, *, max_answer_bytes: int = MAX_ANSWER_BYTES, tls: ssl.SSLContext | None = None
) -> httpx.AsyncClient:
    """Create the client; its requests raise `httpx.RequestError` for a host that is not allowed.

    `tls`: trust and a client certificate of one's own, in place of the machine's.
    """
    transport = TargetTransport(allowed, max_answer_bytes=max_answer_bytes, tls=tls)
    return httpx.AsyncClient(transport=transport, follow_redirects=False)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
