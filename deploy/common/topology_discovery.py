"""The topology of a running cluster: this module lists its nodes, and `fleet.topology` reads their labels.

Ray: `GET /api/v0/nodes` of the dashboard, Ray's State API, has labels and resources of every node; no driver joins the
cluster, and `ray` is not imported.  Kubernetes: the Node objects, page by page, with kubectl's rules for kubeconfig and
service account.  Both only read.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import yaml
from pydantic import BaseModel, Field, ValidationError

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.text import member_or_line
from fleet.errors import FleetwrightError
from fleet.topology import Discovery, LabelNames, topology_from_kubernetes_nodes, topology_from_ray_nodes

RAY_NODES_MAX = 10_000  # limit of Ray's State API, unless the cluster was started with another one
KUBERNETES_PAGE = 500  # kubectl's page size
CONNECT_S, READ_S = 5.0, 30.0

GpuNamer = Callable[[str], str]  # the catalogue's name for a label; raises UnknownNameError


class UnusableSourceError(FleetwrightError):
    """The source of the cluster is not usable: a URL, a kubeconfig, a context, or a missing package."""


class _RayNode(BaseModel):
    node_id: str
    labels: dict[str, str] = {}
    resources_total: dict[str, float] = {}


class _RayListing(BaseModel):
    total: int
    num_filtered: int
    num_after_truncation: int
    partial_failure_warning: str | None = None
    result: list[_RayNode]


class _RayData(BaseModel):
    result: _RayListing


class _RayResponse(BaseModel):
    data: _RayData


class _PageMetadata(BaseModel):
    following: str = Field(default="", alias="continue")


class _NodePage(BaseModel):
    metadata: _PageMetadata
    items: list[dict[str, Any]]


def discover_ray(
    dashboard_url: str, *, http: httpx.Client, labels: LabelNames | None = None, gpu_namer: GpuNamer = str
) -> Discovery:
    """Return the topology of the living nodes of a Ray cluster, by its dashboard."""
    nodes = [
        {"NodeID": node.node_id, "Labels": node.labels, "Resources": node.resources_total}
        for node in _ray_nodes(dashboard_url, http)
    ]
    return topology_from_ray_nodes(nodes, labels=labels, gpu_namer=gpu_namer)


def discover_kubernetes(
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    labels: LabelNames | None = None,
    gpu_namer: GpuNamer = str,
    page_size: int = KUBERNETES_PAGE,
) -> Discovery:
    """Return the topology of a Kubernetes cluster; the default is the cluster that kubectl would use."""
    nodes = list(_kubernetes_nodes(kubeconfig, context, page_size))
    return topology_from_kubernetes_nodes(nodes, labels=labels, gpu_namer=gpu_namer)


def kubeconfig_source(kubeconfig: Path | None) -> tuple[str, bool]:
    """Return the given kubeconfig, or the files that kubectl would read, and whether one of them exists."""
    source = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    return source, any(Path(path).expanduser().exists() for path in source.split(os.pathsep))


def load_in_cluster(config: Any, settings: Any, source: str) -> None:
    """Fill in the pod's service account by `kubernetes.config`, or its asynchronous form."""
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException as error:
        reason = f"there is no kubeconfig at {source}, and this process runs in no cluster: {error}"
        raise UnusableSourceError(reason) from error


def kubeconfig_errors(config: Any) -> tuple[type[Exception], ...]:
    """Return what loading raises: the library takes any YAML as a kubeconfig and fails at the first difference."""
    return (config.ConfigException, OSError, ValueError, TypeError, KeyError, yaml.YAMLError)


def _ray_nodes(dashboard_url: str, http: httpx.Client) -> list[_RayNode]:
    query: dict[str, str | int] = {
        "limit": RAY_NODES_MAX,
        "filter_keys": "state",
        "filter_predicates": "=",
        "filter_values": "ALIVE",
    }
    url = f"{_checked(dashboard_url)}/api/v0/nodes"
    try:
        response = http.get(url, params=query, timeout=httpx.Timeout(READ_S, connect=CONNECT_S))
    except httpx.RequestError as error:
        raise UnreachableError(f"no response from {url}: {str(error) or type(error).__name__}") from error
    if response.status_code != HTTPStatus.OK:
        raise ActuationError(f"{url} returned {response.status_code}: {member_or_line(response.content, 'msg')}")
    try:
        listing = _RayResponse.model_validate_json(response.content).data.result
    except ValidationError as error:
        raise ActuationError(f"{url} is not Ray's State API: {error.errors()[0]['msg']}") from error
    _require_whole(listing, url)
    return listing.result


def _require_whole(listing: _RayListing, url: str) -> None:
    """Refuse a partial list, which resembles a smaller cluster."""
    if listing.partial_failure_warning:
        raise ActuationError(f"{url} could not list all nodes: {listing.partial_failure_warning}")
    if len(listing.result) < listing.num_filtered or listing.num_after_truncation < listing.total:
        raise ActuationError(f"{url} lists {len(listing.result):,} nodes, and there are more: {listing.total:,} in all")


def _checked(dashboard_url: str) -> str:
    try:
        url = httpx.URL(dashboard_url)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
        raise UnusableSourceError("a Ray dashboard must be http://HOST[:PORT] or https://HOST[:PORT], without a user")
    return dashboard_url.rstrip("/")


def _kubernetes_nodes(kubeconfig: Path | None, context: str | None, page_size: int) -> Iterator[Mapping[str, Any]]:
    kubernetes = _kubernetes()
    settings = _kubernetes_settings(kubernetes, kubeconfig, context)
    with kubernetes.client.ApiClient(settings) as api, _refusals_of(settings.host):
        core = kubernetes.client.CoreV1Api(api)
        following: str | None = None
        while following != "":
            # Raw JSON: three fields of each node are needed, not an object of a hundred.
            response = core.list_node(
                limit=page_size, _continue=following, _request_timeout=(CONNECT_S, READ_S), _preload_content=False
            )
            page = _NodePage.model_validate_json(response.data)
            yield from page.items
            following = page.metadata.following


def _kubernetes() -> Any:
    try:
        import kubernetes.client  # noqa: PLC0415 - an extra
        import kubernetes.config  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnusableSourceError(
            "reading a Kubernetes cluster needs an extra: pip install 'fleetwright[kubernetes]'"
        ) from error
    return kubernetes


def _kubernetes_settings(kubernetes: Any, kubeconfig: Path | None, context: str | None) -> Any:
    """Return server and credentials, by kubectl's rules: a kubeconfig, else the pod's service account."""
    settings = kubernetes.client.Configuration()
    settings.retries = False  # retries of urllib3, which would also log each
    source, exists = kubeconfig_source(kubeconfig)
    if kubeconfig is None and context is None and not exists:
        load_in_cluster(kubernetes.config, settings, source)
        return settings
    try:
        kubernetes.config.load_kube_config(
            config_file=source, context=context, client_configuration=settings, persist_config=False
        )
    except kubeconfig_errors(kubernetes.config) as error:
        raise UnusableSourceError(f"kubeconfig {source}: {' '.join(str(error).split())}") from error
    return settings


@contextmanager
def _refusals_of(host: str) -> Iterator[None]:
    from kubernetes.client import ApiException  # noqa: PLC0415 - an extra, as is what it brings
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    try:
        yield
    except ValidationError as error:
        raise ActuationError(f"{host} returned no valid Kubernetes response: {error.errors()[0]['msg']}") from error
    except HTTPError as error:
        raise UnreachableError(f"no response from {host}: {error}") from error
    except ApiException as error:
        if not error.status:  # TLS failed
            raise UnreachableError(f"no response from {host}: {' '.join(str(error.reason).split())}") from error
        raise ActuationError(
            f"{host} returned {error.status}: {member_or_line(error.body or b'', 'message')}"
        ) from error
