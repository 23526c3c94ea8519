"""Checks the settings of this process and the machine that it runs on."""

import asyncio
import importlib.util
import os
import resource
import shutil
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from api.cli.doctor.findings import Check, Finding, failure, ok, skipped, warning
from api.server import Settings
from api.server.front import RESERVED_FILES
from api.server.settings import is_loopback
from api.store import database_file

DAY_S: Final = 86_400
MIB: Final = 1024**2
CERTIFICATE_WARNING_DAYS: Final = 30
CERTIFICATE_FAILURE_DAYS: Final = 3
FREE_WARNING_BYTES: Final = 2 * 1024**3
FREE_FAILURE_BYTES: Final = 256 * MIB
CONNECT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Machine:
    settings: Settings
    now: datetime


async def open_files(machine: Machine) -> Finding:
    """Compare the hard limit of open files with the connections that the service may have."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = machine.settings.max_connections + RESERVED_FILES
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return ok(f"{'unlimited' if hard == resource.RLIM_INFINITY else format(hard, ',')} open files allowed")
    return warning(
        f"{hard:,} open files allowed, FLEETWRIGHT_MAX_CONNECTIONS needs {needed:,}",
        repair="raise the limit (`LimitNOFILE=` of systemd, `ulimit -Hn`), or lower FLEETWRIGHT_MAX_CONNECTIONS",
    )


async def disk_space(machine: Machine) -> Finding:
    """Check the free space beside the SQLite file."""
    file = database_file(machine.settings.database_url.get_secret_value())
    if file is None:
        return skipped("the database is a server, which stores its data itself")
    folder = file.absolute().parent
    if not folder.is_dir():
        return failure(f"there is no folder {folder}", repair="create the folder, or change FLEETWRIGHT_DATABASE_URL")
    free, used = shutil.disk_usage(folder).free, sum(path.stat().st_size for path in _files_of(file))
    detail = f"{free / MIB:,.0f} MiB free, the database has {used / MIB:,.1f} MiB"
    repair = "enlarge the volume, or shorten FLEETWRIGHT_RETENTION_… and run `fleetwright gc`"
    if free < FREE_FAILURE_BYTES:
        return failure(detail, repair=repair)
    return warning(detail, repair=repair) if free < max(FREE_WARNING_BYTES, used) else ok(detail)


async def certificate(machine: Machine) -> Finding:
    """Complete a TLS handshake with the certificate and its key, in memory, and read when it expires."""
    cert, key = machine.settings.tls_cert_file, machine.settings.tls_key_file
    if cert is None or key is None:
        return skipped("FLEETWRIGHT_TLS_CERT_FILE is not set")
    repair = "renew the certificate; the service loads new files without a restart"
    try:
        expires_at = expiry_of(cert, key)
    except OSError as error:  # of which `ssl.SSLError` is one
        return failure(f"{cert}: {error.strerror or getattr(error, 'verify_message', '') or error}", repair=repair)
    days = (expires_at - machine.now).total_seconds() / DAY_S
    detail = f"expires on {expires_at:%Y-%m-%d}, in {days:,.0f} days"
    if days < CERTIFICATE_FAILURE_DAYS:
        return failure(detail, repair=repair)
    return warning(detail, repair=repair) if days < CERTIFICATE_WARNING_DAYS else ok(detail)


def expiry_of(cert: Path, key: Path) -> datetime:
    """Return the end of a certificate; an OSError where it is expired or does not fit to the key."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(cert, key, password=lambda: "")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the anchor
    trusting.load_verify_locations(cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = served.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = client.getpeercert() or {}
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), tz=UTC)


async def contradictions(machine: Machine) -> Finding:
    """Name settings that are valid alone, and have no effect or a wrong one together."""
    found = list(_contradictions(machine.settings))
    if not found:
        return ok("no two settings contradict each other")
    return warning("; ".join(found), repair="change one setting of each pair")


async def exposure(machine: Machine) -> Finding:
    """Check who may use the service without a token, and whether tokens travel encrypted."""
    settings = machine.settings
    if settings.insecure_no_auth:
        return warning("every request has admin rights", repair="unset FLEETWRIGHT_INSECURE_NO_AUTH")
    if is_loopback(settings.host):
        return ok(f"listens on {settings.host}, {'anyone' if settings.anonymous_read else 'only tokens'} may read")
    if settings.tls_cert_file is None:
        return warning(
            f"listens on {settings.host} without TLS: tokens travel in clear text",
            repair="set FLEETWRIGHT_TLS_CERT_FILE and FLEETWRIGHT_TLS_KEY_FILE, or end TLS in a proxy before it",
        )
    return ok(f"listens on {settings.host} with TLS, only tokens may read")


async def job_memory(machine: Machine) -> Finding:
    """Compare the memory of the jobs that one worker runs at once with that of the machine."""
    settings = machine.settings
    slots = settings.plan_concurrency + 2  # one each for lanes `safety` and `reads`
    needed_mib = slots * settings.job_memory_mib
    present_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    detail = f"{slots} jobs of {settings.job_memory_mib:,} MiB each, the machine has {present_mib:,} MiB"
    if needed_mib <= present_mib:
        return ok(detail)
    return warning(detail, repair="lower FLEETWRIGHT_JOB_MEMORY_MIB or FLEETWRIGHT_PLAN_CONCURRENCY")


async def ray(machine: Machine) -> Finding:
    """Connect to the address of the Ray cluster that runs jobs."""
    address = machine.settings.job_ray_address
    if address is None:
        return skipped("FLEETWRIGHT_JOB_RAY_ADDRESS is not set")
    if importlib.util.find_spec("ray") is None:
        return failure("Ray is not installed", repair="pip install 'fleetwright[ray]'")
    parts = urlsplit(address if "://" in address else f"gcs://{address}")
    if parts.hostname is None or parts.port is None:
        return skipped(f"{address!r} names no host and port")
    where = f"{parts.hostname}:{parts.port}"
    try:
        async with asyncio.timeout(CONNECT_S):
            _reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError as error:
        reason = error.strerror or str(error) or f"no response within {CONNECT_S:g} s"
        return failure(f"{where}: {reason}", repair="start the Ray cluster, or change FLEETWRIGHT_JOB_RAY_ADDRESS")
    writer.close()
    return ok(f"{where} accepts connections")


def _contradictions(settings: Settings) -> Iterator[str]:
    if settings.document_body_limit_bytes > settings.body_limit_bytes:
        yield "DOCUMENT_BODY_LIMIT_BYTES is above BODY_LIMIT_BYTES"
    if settings.retention_bundles_days > settings.retention_diagnoses_days:
        yield "RETENTION_BUNDLES_DAYS is above RETENTION_DIAGNOSES_DAYS: bundles go with their diagnoses"
    if settings.idempotency_ttl_s > settings.retention_jobs_days * DAY_S:
        yield "IDEMPOTENCY_TTL_S is above RETENTION_JOBS_DAYS: a key is lost with its job"
    if settings.oidc_issuer is None and (settings.oidc_groups or settings.oidc_audience):
        yield "OIDC_GROUPS or OIDC_AUDIENCE is set without OIDC_ISSUER"
    if settings.oidc_issuer is not None and not settings.oidc_groups:
        yield "OIDC_ISSUER is set without OIDC_GROUPS: its tokens grant nothing"
    if settings.kubernetes_tokens != bool(settings.kubernetes_grants):
        yield "KUBERNETES_TOKENS and KUBERNETES_GRANTS have an effect together only"
    if settings.insecure_no_auth and (settings.anonymous_read or settings.oidc_issuer is not None):
        yield "INSECURE_NO_AUTH makes ANONYMOUS_READ and OIDC_ISSUER void"
    if settings.result_reuse_s > settings.retention_plans_days * DAY_S:
        yield "RESULT_REUSE_S is above RETENTION_PLANS_DAYS"


def _files_of(database: Path) -> Iterator[Path]:
    for suffix in ("", "-wal", "-shm"):
        if (file := database.with_name(database.name + suffix)).exists():
            yield file


CHECKS: Mapping[str, Check[Machine]] = {
    "settings-contradictions": contradictions,
    "exposure": exposure,
    "tls-certificate": certificate,
    "open-files": open_files,
    "disk-space": disk_space,
    "job-memory": job_memory,
    "ray": ray,
}
