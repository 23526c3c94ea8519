"""Settings: one place, read from the environment (`FLEETWRIGHT_…`), each with its unit and its reason."""

import ipaddress
from enum import StrEnum
from pathlib import Path

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    CONSOLE = "console"


class Settings(BaseSettings):
    """Settings of `fleetwright serve`."""

    model_config = SettingsConfigDict(env_prefix="FLEETWRIGHT_", frozen=True, extra="ignore")

    # Secret because a PostgreSQL URL holds a password; never logged, never in an error.
    database_url: SecretStr = SecretStr("sqlite+aiosqlite:///fleetwright.db")

    # Loopback by default: a service that plans for a laptop has no business on its network.
    host: str = "127.0.0.1"
    port: int = Field(default=8400, ge=0, le=65_535)  # 0 lets the system choose

    # Holds the first admin token (`fw_ID_SECRET`), such as a mounted Secret.  Without it one is made and printed once.
    bootstrap_token_file: Path | None = None
    # Every request is an admin's.  Refused unless the host is loopback.
    insecure_no_auth: bool = False
    # Requests without a token may read.  Refused unless the host is loopback: for trying things on a laptop.
    anonymous_read: bool = False

    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    log_format: LogFormat = LogFormat.JSON

    # A plan request with 100 models x 60 buckets x 40 outright options is about 5 MB; 10 MB and more is a mistake.
    body_limit_bytes: int = Field(default=8 * 1024 * 1024, ge=1024, le=1024**3)

    # Per token (or per address, without one): a token bucket that refills at `rate` and holds `burst`.
    # A controller with 200 targets needs about 80 requests a second at its busiest.
    rate_limit_per_s: float = Field(default=100.0, gt=0, le=1e6)
    rate_limit_burst: int = Field(default=400, ge=1, le=1_000_000)

    # As long as a client may reasonably retry; the usual day.
    idempotency_ttl_s: int = Field(default=86_400, ge=60, le=30 * 86_400)

    # Servers times days of one simulated row: 14 days of 64 servers keep a core busy for about a minute, with the two
    # uncapped rows that they are held against.
    simulation_server_days: float = Field(default=1_000.0, gt=0, le=1e6)

    # Ranks times hours of one simulated cluster: 2,048 keep a core busy for about a minute.
    fault_simulation_rank_hours: float = Field(default=2_048.0, gt=0, le=1e9)

    # Solvers use a core each; more at a time only makes all of them slower.
    plan_concurrency: int = Field(default=2, ge=1, le=256)

    @model_validator(mode="after")
    def _require_loopback_without_tokens(self) -> "Settings":
        for name in ("insecure_no_auth", "anonymous_read"):
            if getattr(self, name) and not is_loopback(self.host):
                raise ValueError(
                    f"{name}: host is {self.host!r}; allowed only with a loopback host (127.0.0.1, ::1, localhost)"
                )
        return self

    @property
    def allows_anonymous(self) -> bool:
        """Whether some requests need no token, so that only the address protects the service."""
        return self.insecure_no_auth or self.anonymous_read


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
