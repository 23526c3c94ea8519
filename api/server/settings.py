"""Reads the settings of the service from the environment (`FLEETWRIGHT_…`)."""

import importlib.util
import ipaddress
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from api.schemas.names import Name
from api.schemas.tokens import TokenScope
from api.server.wanted import Dialect
from fleet.documents import Frozen


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


class AuditLevel(StrEnum):
    """What the audit records besides every write."""

    WRITES = "writes"
    REFUSALS = "refusals"
    READS = "reads"


class GroupGrant(Frozen):
    """What the members of a group of an OpenID Connect issuer or of Kubernetes may do."""

    scopes: frozenset[TokenScope]
    project: Name | None = None  # None: every project


class Settings(BaseSettings):
    """Settings of `fleetwright serve`."""

    model_config = SettingsConfigDict(
        env_prefix="FLEETWRIGHT_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    database_url: SecretStr = SecretStr("sqlite+aiosqlite:///fleetwright.db")
    """SQLite by default, or `postgresql+psycopg://…`.  Never in logs or errors: it may contain a password."""

    host: str = "127.0.0.1"
    """Address to listen on; loopback by default."""

    port: int = Field(default=8400, ge=0, le=65_535)
    """Port to listen on; 0: the system chooses."""

    bootstrap_token_file: Path | None = None
    """File with the first admin token (`fw_ID_SECRET`).  Without it the service creates one and prints it once."""

    insecure_no_auth: bool = False
    """Every request has admin rights.  Only with a loopback host."""

    audit_level: AuditLevel = AuditLevel.WRITES
    """`writes`; `refusals` adds requests answered 401, 403 and 429; `reads` adds all that were read, too."""

    self_approval: bool = False
    """Who prepared a change of a target may approve it.  For installations of one person."""

    anonymous_read: bool = False
    """Requests without a token may read.  Only with a loopback host."""

    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    """Minimum level of log lines."""

    log_format: LogFormat = LogFormat.JSON
    """JSON objects, or lines for a console."""

    publish: Annotated[frozenset[Dialect], NoDecode] = frozenset()
    """Dialects of other autoscalers in which wanted replica counts are served without a token: `llm-d`, `aibrix`, or
    both with a comma."""

    target_hosts: str = ""
    """Hosts that the controller inside the service calls for targets: names, suffixes (`.svc`), addresses and networks;
    none: loopback."""

    tls_cert_file: Path | None = None
    """Certificate chain (PEM) for HTTPS; loaded again when it changes.  None: HTTP."""

    tls_key_file: Path | None = None
    """Private key of the certificate (PEM, without a password)."""

    tls_client_ca_file: Path | None = None
    """Only clients with a certificate of these authorities (PEM) may connect."""

    oidc_issuer: str | None = None
    """URL of the OpenID Connect issuer whose tokens are accepted too, as in their claim `iss`."""

    oidc_audience: str | None = None
    """The audience of those tokens: the client id of this service at the issuer."""

    oidc_groups_claim: str = "groups"
    """The claim with the groups; dots lead into nested claims (`realm_access.roles`)."""

    oidc_groups: dict[str, GroupGrant] = {}
    """What each group grants, as JSON: `{"sre": {"scopes": ["admin"]}, "team-a": {"scopes": ["read", "plan"],
    "project": "team-a"}}`."""

    kubernetes_tokens: bool = False
    """Tokens of service accounts of the cluster are accepted too; the API server of Kubernetes reviews them."""

    kubernetes_audience: str = "fleetwright"
    """The audience for which such a token must be issued."""

    kubernetes_grants: dict[str, GroupGrant] = {}
    """What each account (`system:serviceaccount:NAMESPACE:NAME`) or group (`system:serviceaccounts:NAMESPACE`) grants,
    as JSON, in the form of `oidc_groups`."""

    kubernetes_api_url: str = "https://kubernetes.default.svc"
    """URL of the Kubernetes API server."""

    kubernetes_account_dir: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    """Folder with the token of the service's own account and the authority of the API server: `token` and `ca.crt`."""

    # A plan request with 100 models x 60 buckets x 40 own options is about 5 MB.
    body_limit_bytes: int = Field(default=8 * 1024 * 1024, ge=1024, le=1024**3)
    """Maximum size of a request body in bytes; only requests for results and diagnoses may be so large."""

    document_body_limit_bytes: int = Field(default=1024 * 1024, ge=1024, le=1024**3)
    """Maximum size of every other request body in bytes."""

    max_connections: int = Field(default=2_000, ge=16, le=1_000_000)
    """Maximum open connections of a process; fewer where the system allows fewer open files.  At the maximum the
    service closes the connection whose client it has waited for longest."""

    metrics_interval_s: float = Field(default=1.0, ge=0, le=60)
    """Seconds for which all readers of `/metrics` share one page; 0: only while it is rendered."""

    event_followers: int = Field(default=200, ge=0, le=100_000)
    """Requests that may follow `/v1/events` on one process at the same time."""

    event_followers_per_caller: int = Field(default=20, ge=0, le=100_000)
    """How many of them may be of one token."""

    # A controller with 200 targets sends about 80 requests per second at most.
    rate_limit_per_s: float = Field(default=100.0, gt=0, le=1e6)
    """Requests per second per token, or per address without one."""

    rate_limit_burst: int = Field(default=400, ge=1, le=1_000_000)
    """Requests at once per token, or per address without one."""

    idempotency_ttl_s: int = Field(default=86_400, ge=60, le=30 * 86_400)
    """How long an idempotency key is stored, in seconds."""

    # 14 days of 64 servers occupy a core for about a minute, with the two uncapped reference rows.
    simulation_server_days: float = Field(default=1_000.0, gt=0, le=1e6)
    """Maximum servers x days of one simulated row."""

    # 2,048 occupy a core for about a minute.
    fault_simulation_rank_hours: float = Field(default=2_048.0, gt=0, le=1e9)
    """Maximum ranks x hours of one simulated cluster."""

    fault_simulation_ranks: int = Field(default=16_384, ge=128, le=131_072)
    """Maximum ranks of one simulated cluster: memory grows with them."""

    plan_replayed_requests: int = Field(default=2_000_000, ge=1, le=1_000_000_000)
    """Maximum requests that one plan replays per trial, over all workloads."""

    sweep_points: int = Field(default=2_000, ge=1, le=10_000)
    """Maximum points of one sweep, and of one token's sweeps that wait."""

    retention_plans_days: float = Field(default=365, gt=0, le=36_500)
    """How long plans, placements and power plans are stored that no target names, in days."""

    retention_simulations_days: float = Field(default=90, gt=0, le=36_500)
    """How long simulations are stored, in days."""

    retention_bundles_days: float = Field(default=90, gt=0, le=36_500)
    """How long bundles of diagnoses are stored, in days."""

    retention_diagnoses_days: float = Field(default=365, gt=0, le=36_500)
    """How long diagnoses are stored that no remediation case names, in days."""

    retention_cases_days: float = Field(default=365, gt=0, le=36_500)
    """How long closed remediation cases are stored, in days."""

    retention_versions_days: float = Field(default=365, gt=0, le=36_500)
    """How long old versions of documents are stored, and documents after their deletion, in days."""

    retention_versions_count: int = Field(default=1_000, ge=1, le=1_000_000)
    """How many newest versions of a document are stored however old they are."""

    retention_jobs_days: float = Field(default=7, gt=0, le=36_500)
    """How long finished jobs are stored, in days."""

    retention_tokens_days: float = Field(default=90, gt=0, le=36_500)
    """How long tokens are listed after they expired or were revoked, in days."""

    retention_leases_days: float = Field(default=90, gt=0, le=36_500)
    """How long leases are stored after their last renewal, in days."""

    retention_interval_s: int = Field(default=3_600, ge=60, le=7 * 86_400)
    """Time between two removals of rows that are older than that, in seconds."""

    plan_concurrency: int = Field(default=2, ge=1, le=256)
    """Jobs of lane `work` that one worker runs at the same time; each occupies a core."""

    job_memory_mib: int = Field(default=1024, ge=256, le=1024**2)
    """Memory of one job; a job that needs more fails."""

    job_deadline_s: float = Field(default=900.0, ge=1, le=86_400)
    """How long a job may run."""

    job_ray_address: str | None = None
    """Address of a Ray cluster that runs the jobs of lane `work`: `auto` or HOST:PORT of its control service.  The
    worker must run on a node of the cluster.  None: this machine."""

    jobs_queued_per_caller: int = Field(default=32, ge=1, le=100_000)
    """Jobs of a lane that one token may have waiting."""

    result_reuse_s: float = Field(default=3600.0, ge=0, le=30 * 86_400)
    """A result of the same request and catalogues is copied instead of solved again for this long; 0: never."""

    @field_validator("publish", mode="before")
    @classmethod
    def _split_dialects(cls, value: object) -> object:
        return [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _require_loopback_without_tokens(self) -> "Settings":
        for name in ("insecure_no_auth", "anonymous_read"):
            if getattr(self, name) and not is_loopback(self.host):
                raise ValueError(
                    f"{name}: host is {self.host!r}; allowed only with a loopback host (127.0.0.1, ::1, localhost)"
                )
        return self

    @model_validator(mode="after")
    def _require_address_of_control_service(self) -> "Settings":
        if self.job_ray_address is not None and "://" in self.job_ray_address:
            raise ValueError(f"job_ray_address: must be `auto` or HOST:PORT, got {self.job_ray_address!r}")
        return self

    @model_validator(mode="after")
    def _require_certificate_and_key(self) -> "Settings":
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file, tls_key_file: give both or neither")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_client_ca_file: is given without tls_cert_file")
        return self

    @model_validator(mode="after")
    def _require_a_whole_issuer(self) -> "Settings":
        if self.oidc_issuer is None:
            return self
        if not is_secure_url(self.oidc_issuer):
            raise ValueError(f"oidc_issuer: must be an https URL, or http on loopback, got {self.oidc_issuer!r}")
        if not self.oidc_audience:
            raise ValueError("oidc_audience: is required with oidc_issuer")
        if importlib.util.find_spec("jwt") is None:
            raise ValueError("oidc_issuer: needs the extra `oidc`: pip install 'fleetwright[oidc]'")
        return self

    @model_validator(mode="after")
    def _require_a_cluster(self) -> "Settings":
        if self.kubernetes_tokens and urlsplit(self.kubernetes_api_url).scheme != "https":
            raise ValueError(f"kubernetes_api_url: must be an https URL, got {self.kubernetes_api_url!r}")
        if self.kubernetes_tokens and not self.kubernetes_audience:
            raise ValueError("kubernetes_audience: is required with kubernetes_tokens")
        return self

    @property
    def allows_anonymous(self) -> bool:
        """Is true when some requests need no token, so that only the loopback address protects the service."""
        return self.insecure_no_auth or self.anonymous_read


def is_secure_url(url: str) -> bool:
    """Check for https, or http that does not leave this machine."""
    try:
        parsed = urlsplit(url)
        return bool(parsed.hostname) and (
            parsed.scheme == "https" or (parsed.scheme == "http" and is_loopback(parsed.hostname or ""))
        )
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Check whether a host name or address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
