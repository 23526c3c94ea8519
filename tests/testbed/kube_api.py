"""Provides tests with a Kubernetes API server: its address, its certificate authority, and identities."""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes import client, config, dynamic

from tests.testbed.certificates import Authority
from tests.testbed.waiting import wait_for

ADMINS: Final = "system:masters"
FIELD_MANAGER: Final = "testbed"


@dataclass(frozen=True, kw_only=True)
class KubeApi:
    url: str
    authority: Authority
    work_dir: Path
    server_argv: tuple[str, ...] = ()  # of kube-apiserver

    @property
    def kubeconfig_path(self) -> Path:
        """Return the kubeconfig of an administrator."""
        return self.certificate_kubeconfig("testbed-admin", groups=[ADMINS])

    @property
    def log_dir(self) -> Path:
        """Return the log directory of the control plane and of the programs that run on it."""
        return self.work_dir / "logs"

    @property
    def ca_bundle(self) -> str:
        """Return the certificate of the authority in base64, as manifests contain it."""
        return _base64(self.authority.cert_path)

    @property
    def version(self) -> str:
        """Return the server's version, such as v1.36.3."""
        with self.connect() as api:
            return str(client.VersionApi(api).get_code().git_version)

    def certificate_kubeconfig(self, user: str, *, groups: Sequence[str] = ()) -> Path:
        """Return a kubeconfig for `user` with a client certificate, created on first use."""
        path = self.work_dir / f"{'-'.join([user, *groups]).replace(':', '-')}.kubeconfig"
        if not path.exists():
            pair = self.authority.issue(path.stem, common_name=user, groups=groups)
            certificate, key = _base64(pair.cert_path), _base64(pair.key_path)
            self._write_kubeconfig(path, {"client-certificate-data": certificate, "client-key-data": key})
        return path

    def service_account_kubeconfig(self, *, namespace: str, name: str, lifetime_s: int = 3600) -> Path:
        """Return a kubeconfig with a new token of that service account, which has only its RBAC rights."""
        request = {"spec": {"audiences": [], "expirationSeconds": lifetime_s}}
        with self.connect() as api:
            issued = client.CoreV1Api(api).create_namespaced_service_account_token(name, namespace, request)
        path = self.work_dir / f"{namespace}-{name}-{secrets.token_hex(4)}.kubeconfig"
        return self._write_kubeconfig(path, {"token": issued.status.token})

    def connect(self, kubeconfig_path: Path | None = None) -> client.ApiClient:
        """Open a client for use in `with`; without a kubeconfig it is the administrator's."""
        settings = client.Configuration()
        config.load_kube_config(str(kubeconfig_path or self.kubeconfig_path), client_configuration=settings)
        settings.proxy = None  # the server is on loopback, so no proxy of the environment applies
        return client.ApiClient(settings)

    def apply(self, manifest: Mapping[str, Any], *, field_manager: str = FIELD_MANAGER) -> dict[str, Any]:
        """Apply an object of any kind on the server side, and return the stored object."""
        with self.connect() as api:
            # By default discovery is kept in the common temporary directory under a name made of host and port.
            known = dynamic.DynamicClient(api, cache_file=str(self.work_dir / "discovery.json")).resources
            resource = known.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
            namespace = manifest["metadata"].get("namespace")
            applied = resource.server_side_apply(body=dict(manifest), namespace=namespace, field_manager=field_manager)
            return dict(applied.to_dict())

    def install_crds(self, directory: Path) -> None:
        """Create the resource definitions in `directory` and wait until the server serves each."""
        manifests = [manifest for path in sorted(directory.glob("*.yaml")) for manifest in read_manifests(path)]
        with self.connect() as api:
            definitions = client.ApiextensionsV1Api(api)
            for manifest in manifests:
                # Applying, or parsing the response, takes seconds for a definition of ten thousand lines.
                definitions.create_custom_resource_definition(manifest, _preload_content=False)
            for spec in (manifest["spec"] for manifest in manifests):
                for version in (version["name"] for version in spec["versions"] if version["served"]):
                    kind = spec["names"]["kind"]
                    observe = partial(is_served, api, spec["group"], version, kind)
                    wait_for(observe, what=f"{kind} of {spec['group']}/{version} on the server")

    def _write_kubeconfig(self, path: Path, user: Mapping[str, str]) -> Path:
        name = path.stem
        cluster = {"server": self.url, "certificate-authority-data": self.ca_bundle}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": name, "user": dict(user)}],
            "contexts": [{"name": name, "context": {"cluster": "testbed", "user": name}}],
            "current-context": name,
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1))
        return path


def read_manifests(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a YAML file; the C parser is used because resource definitions are long."""
    return [document for document in yaml.load_all(path.read_bytes(), Loader=yaml.CSafeLoader) if document]


def is_served(api: client.ApiClient, group: str, version: str, kind: str) -> bool:
    try:
        found = client.CustomObjectsApi(api).get_api_resources(group, version)
    except client.ApiException as error:
        if error.status == 404:  # nothing of this group is served yet
            return False
        raise
    return any(resource.kind == kind for resource in found.resources)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
