"""Serves HTTPS.  The certificate is loaded again when its files change: operators renew it without a restart."""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn

from api.server import Settings

POLL_S: Final = 5.0

log = structlog.get_logger(__name__)


def tls_options(settings: Settings) -> dict[str, Any]:
    """Return the arguments of `uvicorn.Config`; none without a certificate."""
    if settings.tls_cert_file is None:
        return {}
    options: dict[str, Any] = {"ssl_certfile": settings.tls_cert_file, "ssl_keyfile": settings.tls_key_file}
    if settings.tls_client_ca_file is not None:
        options |= {"ssl_ca_certs": str(settings.tls_client_ca_file), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


async def keep_certificate(config: uvicorn.Config, settings: Settings, *, poll_s: float = POLL_S) -> None:
    """Load the certificate into the running server's context whenever its files change, until cancelled.

    New connections get the new certificate.  Files that do not fit together, as in the middle of a renewal, change
    nothing and are read again.
    """
    cert, key, context = settings.tls_cert_file, settings.tls_key_file, config.ssl
    if cert is None or key is None or context is None:
        return
    loaded = _state(cert, key)
    while True:
        await asyncio.sleep(poll_s)
        if (found := _state(cert, key)) == loaded:
            continue
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
            context.load_cert_chain(cert, key)
        except OSError as error:  # of which `ssl.SSLError` is one
            log.warning("certificate_not_loaded", file=str(cert), reason=str(error))
            continue
        loaded = found
        log.info("certificate_loaded", file=str(cert))


def _state(*files: Path) -> list[tuple[int, int, int]]:
    """Return what changes when the files are replaced; empty while one is missing."""
    try:
        return [(found.st_mtime_ns, found.st_ino, found.st_size) for found in (path.stat() for path in files)]
    except OSError:
        return []
