"""Checks a running service as its clients reach it."""

import asyncio
import ssl
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from api.cli.doctor.findings import Check, Finding, failure, ok, skipped, warning
from api.cli.doctor.machine_checks import CERTIFICATE_FAILURE_DAYS, CERTIFICATE_WARNING_DAYS, DAY_S
from api.client import ApiError, AsyncClient, UnauthorizedError
from api.schemas.leases import CONTROLLER_LEASE, REMEDIATION_LEASE
from api.schemas.tokens import TokenScope
from api.server.settings import is_loopback

REQUESTS: Final = 5
LATENCY_WARNING_S: Final = 0.5
SCRAPE_WARNING_S: Final = 5.0  # half of Prometheus' usual scrape timeout
CONNECT_S: Final = 5.0
POLL_S: Final = 0.5
OBSERVED_S: Final = 40.0
CONTROLLERS: Final = (CONTROLLER_LEASE, REMEDIATION_LEASE)


@dataclass(frozen=True, slots=True)
class Service:
    url: str
    client: AsyncClient
    token_given: bool
    now: datetime


async def live(service: Service) -> Finding:
    """Send some requests that need no database, and measure the median."""
    times_s = []
    for _ in range(REQUESTS):
        started_s = time.perf_counter()
        await service.client.check_live()
        times_s.append(time.perf_counter() - started_s)
    median_s = statistics.median(times_s)
    detail = f"responds within {median_s * 1000:,.1f} ms (median of {REQUESTS})"
    if median_s <= LATENCY_WARNING_S:
        return ok(detail)
    return warning(detail, repair="check the network, and the load of the API (`fleetwright_event_loop_delay_seconds`)")


async def ready(service: Service) -> Finding:
    """Check that the service takes reads and writes."""
    try:
        await service.client.check_ready()
    except ApiError as error:
        return failure(str(error), repair="run `fleetwright doctor` with FLEETWRIGHT_DATABASE_URL beside the service")
    return ok("takes reads and writes")


async def metrics(service: Service) -> Finding:
    """Scrape `/metrics` as Prometheus does."""
    started_s = time.perf_counter()
    samples = dict(_samples(await service.client.get_metrics()))
    took_s = time.perf_counter() - started_s
    detail = f"{len(samples):,} samples within {took_s * 1000:,.0f} ms"
    for name, repair in (
        ("fleetwright_database_up", "check the database"),
        ("fleetwright_database_writable", "check the disk and the role of the database"),
        ("fleetwright_workers", "start `fleetwright worker`"),
    ):
        if not samples.get(name):
            return failure(f"{detail}; {name} is 0", repair=repair)
    if took_s > SCRAPE_WARNING_S:
        return warning(detail, repair="raise the scrape timeout of Prometheus")
    return ok(detail)


async def versions(service: Service) -> Finding:
    """Compare the version of this program with that of the service and its workers."""
    own = version("fleetwright")
    page = text_string_to_metric_families(await service.client.get_metrics())
    served = {
        sample.labels["version"]
        for family in page
        for sample in family.samples
        if sample.name == "fleetwright_build_info"
    }
    if served == {own}:
        return ok(f"client and service are at {own}")
    return warning(
        f"the client is at {own}, the service at {', '.join(sorted(served)) or 'an unknown version'}",
        repair="install the release of the service; docs/how-to/install-and-upgrade.md has the order of upgrades",
    )


async def token(service: Service) -> Finding:
    """Read the scopes and the project of the token."""
    if not service.token_given:
        return skipped("no token is given")
    try:
        session = await service.client.get_session()
    except UnauthorizedError:
        return failure("the token is unknown, expired or revoked", repair="create one with `fleetwright tokens create`")
    scopes = ", ".join(scope.value for scope in session.scopes) or "none"
    detail = f"{session.actor}: scopes {scopes}; {session.project or 'every'} project"
    if not session.scopes:
        return failure(detail, repair="grant a scope to one of its groups (FLEETWRIGHT_OIDC_GROUPS)")
    if TokenScope.ADMIN in session.scopes:
        return warning(detail, repair="use a token with the scopes that the task needs")
    return ok(detail)


async def anonymous(service: Service) -> Finding:
    """Check that a caller without a token reads nothing, unless the service listens on loopback only."""
    async with AsyncClient(service.url) as stranger:
        try:
            await stranger.list_plans(limit=1)
        except UnauthorizedError:
            return ok("reading needs a token")
    if is_loopback(urlsplit(service.url).hostname or ""):
        return ok("anyone on this machine may read")
    return failure(
        "anyone may read, from other machines too",
        repair="unset FLEETWRIGHT_ANONYMOUS_READ, or let the proxy before the service refuse such requests",
    )


async def certificate(service: Service) -> Finding:
    """Read when the certificate of the service expires."""
    parts = urlsplit(service.url)
    if parts.scheme != "https":
        return skipped("the URL is not https")
    context = ssl.create_default_context()
    async with asyncio.timeout(CONNECT_S):
        _reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=context)
    found = writer.get_extra_info("peercert") or {}
    writer.close()
    expires_at = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), tz=UTC)
    days = (expires_at - service.now).total_seconds() / DAY_S
    detail = f"expires on {expires_at:%Y-%m-%d}, in {days:,.0f} days"
    if days < CERTIFICATE_FAILURE_DAYS:
        return failure(detail, repair="renew the certificate")
    return warning(detail, repair="renew the certificate") if days < CERTIFICATE_WARNING_DAYS else ok(detail)


async def leases(service: Service) -> Finding:
    """Observe the leases of controllers until each was renewed, at most for the duration of the lease."""
    if not service.token_given:
        return skipped("no token is given")
    first = await _held(service.client)
    if not first:
        return skipped("no controller holds a lease")
    started_s, still = time.monotonic(), dict(first)
    while still and time.monotonic() - started_s < min(OBSERVED_S, max(limit for _, limit in still.values())):
        await asyncio.sleep(POLL_S)
        now = await _held(service.client)
        still = {name: held for name, held in first.items() if now.get(name) == held}
    expired = sorted(name for name, (_, limit_s) in still.items() if limit_s <= OBSERVED_S)
    if expired:
        return warning(
            f"not renewed within its duration: {', '.join(expired)}",
            repair="start the controller again, or read its log",
        )
    if still:
        return skipped(f"leases longer than {OBSERVED_S:g} s are not observed: {', '.join(sorted(still))}")
    return ok(f"renewed: {', '.join(sorted(first))}")


async def _held(client: AsyncClient) -> dict[str, tuple[tuple[int, int], float]]:
    """Return term, beats and duration of the leases that controllers hold."""
    return {
        lease.name: ((lease.term, lease.beats), lease.lease_s)
        async for lease in client.iter_leases()
        if lease.name in CONTROLLERS and lease.holder is not None
    }


def _samples(page: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            yield f"{sample.name}{{{labels}}}" if labels else sample.name, sample.value


CHECKS: Mapping[str, Check[Service]] = {
    "service-live": live,
    "service-ready": ready,
    "service-certificate": certificate,
    "service-metrics": metrics,
    "service-version": versions,
    "service-token": token,
    "service-anonymous": anonymous,
    "service-leases": leases,
}
