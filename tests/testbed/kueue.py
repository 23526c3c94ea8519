"""Runs the real Kueue on the test control plane, with its admission webhooks; of the integrations, batch Jobs only.

Kueue takes the paths of its certificates as options, except for its metrics, whose certificate it reads from
`/etc/kueue/metrics/certs`.  It therefore runs in its own mount namespace with another `/etc`; the machine's `/etc` does
not change.
"""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.testbed import binaries
from tests.testbed.certificates import KeyPair
from tests.testbed.go_tools import KUEUE
from tests.testbed.kube_api import ADMINS, KubeApi, read_manifests
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.requirements import UnavailableError, skipping_where_unavailable

NAMESPACE: Final = "kueue-system"
INTEGRATIONS: Final = ("batch/job",)
SERVED_WEBHOOKS: Final = (
    "kueue-x-k8s-io",
    "batch-v1-job",
)  # parts of the paths that Kueue serves with those integrations
UNSHARE: Final = (("unshare", "-rm"), ("unshare", "-m"))  # by a user namespace, or by being root outside of one
OWN_ETC: Final = 'mount --bind "$1" /etc'
WITH_OWN_ETC: Final = ("sh", "-c", f'{OWN_ETC} && shift && exec "$@"', "sh")


@dataclass(frozen=True, kw_only=True)
class Kueue:
    version: str
    log_path: Path


@contextmanager
def kueue_manager(api: KubeApi) -> Iterator[Kueue]:
    """Install the resource definitions and webhooks in `api` and run Kueue for all namespaces."""
    files = binaries.find(KUEUE)
    work_dir = api.work_dir / "kueue"
    own_etc = work_dir / "etc"
    serving = _lay_out_certificates(api, work_dir)
    prefix = _mount_namespace(own_etc)

    webhook_port, metrics_port, health_port = free_ports(3)
    configuration = work_dir / "configuration.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(serving, webhook_port, metrics_port, health_port)))
    api.install_crds(files["kueue-crds"])
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    argv: list[str | Path] = [
        *WITH_OWN_ETC,
        own_etc,
        files["kueue"],
        f"--config={configuration}",
        f"--kubeconfig={api.certificate_kubeconfig('kueue', groups=[ADMINS])}",
        "--feature-gates=VisibilityOnDemand=false",  # the visibility server needs another certificate
    ]
    with Process.start(argv, name="kueue", log_dir=api.log_dir, prefix=prefix) as process:
        process.wait_ready(partial(answers_ok, f"http://{LOOPBACK}:{health_port}/readyz"))
        for manifest in read_manifests(files["kueue-webhooks"] / "manifests.yaml"):
            api.apply(_on_loopback(manifest, port=webhook_port, ca_bundle=api.ca_bundle))
        yield Kueue(version=KUEUE.version, log_path=process.log_path)


@pytest.fixture(scope="session")
def kueue(kube_api: KubeApi) -> Iterator[Kueue]:
    """Share one Kueue among all tests of the session."""
    with skipping_where_unavailable("kubernetes", what="Kueue"), kueue_manager(kube_api) as manager:
        yield manager


def _lay_out_certificates(api: KubeApi, work_dir: Path) -> KeyPair:
    """Write one certificate for both the webhooks and the metrics; return the copy for the webhooks."""
    issued = api.authority.issue("kueue-serving", common_name="kueue", hosts=[LOOPBACK])
    for directory in (work_dir / "webhook", work_dir / "etc" / "kueue" / "metrics" / "certs"):
        directory.mkdir(parents=True)
        shutil.copy(issued.cert_path, directory / "tls.crt")
        shutil.copy(issued.key_path, directory / "tls.key")
    return KeyPair(cert_path=work_dir / "webhook" / "tls.crt", key_path=work_dir / "webhook" / "tls.key")


def _mount_namespace(own_etc: Path) -> Sequence[str]:
    """Return the command that gives a program its own mounts; it tries each candidate."""
    for prefix in UNSHARE if shutil.which("unshare") else ():
        trial = [*prefix, "sh", "-c", OWN_ETC, "sh", str(own_etc)]
        if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
            return prefix
    raise UnavailableError(
        "it reads a certificate from /etc/kueue/metrics/certs, and this machine lets us mount something there "
        "neither as root (unshare -m) nor in a user namespace (unshare -rm)"
    )


def _configuration(serving: KeyPair, webhook_port: int, metrics_port: int, health_port: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": LOOPBACK, "port": webhook_port, "certDir": str(serving.cert_path.parent)},
        "metrics": {"bindAddress": f"{LOOPBACK}:{metrics_port}"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health_port}"},
        "integrations": {"frameworks": list(INTEGRATIONS)},
    }


def _on_loopback(manifest: dict[str, Any], *, port: int, ca_bundle: str) -> dict[str, Any]:
    """Make a webhook configuration call Kueue by address: the test bed does not route to Services."""
    served = []
    for webhook in manifest["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        if any(part in path for part in SERVED_WEBHOOKS):
            here = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": ca_bundle}
            served.append(webhook | {"clientConfig": here})
    return manifest | {"metadata": {"name": f"kueue-{manifest['metadata']['name']}"}, "webhooks": served}
