"""Runs a real control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok for kubelets.

Everything listens on loopback only, RBAC is on, and every part has its own identity.  kwok marks the nodes of a test as
ready and their pods as running; nothing is executed.  One of kwok's stages is changed: the pod of a Job runs until it
is annotated with `COMPLETE`, so that a test can check it before.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from tests.testbed import binaries
from tests.testbed.certificates import Authority, KeyPair, signing_key
from tests.testbed.go_tools import KUBERNETES
from tests.testbed.kube_api import ADMINS, KubeApi, read_manifests
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports

COMPLETE: Final = "testbed.fleetwright/complete"
ISSUER: Final = "https://kubernetes.default.svc"
SERVICE_CIDR: Final = "10.96.0.0/16"
NODE_LEASE_S: Final = 40
FRONT_PROXY: Final = "front-proxy"
KILL_AFTER_S: Final = 0.5  # an API server drains open watches for up to a minute, but its data is discarded here

Flags = Mapping[str, object]


class Ports(NamedTuple):
    """Lists the loopback port of each part."""

    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int


@contextmanager
def control_plane(work_dir: Path) -> Iterator[KubeApi]:
    """Run a control plane with its files in `work_dir`; it is ready on entry and stopped on exit."""
    files = binaries.find(KUBERNETES)
    ports = Ports(*free_ports(len(Ports._fields)))
    authority = Authority.create(work_dir / "pki")
    serving = authority.issue("serving", common_name="testbed", hosts=[LOOPBACK, "localhost"])
    tokens = signing_key(authority.directory, "service-account")
    server_argv = _argv(files["kube-apiserver"], api_server_flags(ports, authority, serving, tokens))
    url = f"https://{LOOPBACK}:{ports.api_server}"
    api = KubeApi(url=url, authority=authority, work_dir=work_dir, server_argv=server_argv)

    with ExitStack() as running:

        def start(name: str, flags: Flags) -> Process:
            return start_argv(name, _argv(files[name], flags))

        def start_argv(name: str, argv: Sequence[str]) -> Process:
            process = Process.start(argv, name=name, log_dir=api.log_dir)
            running.callback(process.stop, grace_s=KILL_AFTER_S)
            return process

        etcd = start("etcd", etcd_flags(ports, data_dir=work_dir / "etcd"))
        etcd.wait_ready(partial(answers_ok, f"http://{LOOPBACK}:{ports.etcd}/health"))

        api_server = start_argv("kube-apiserver", server_argv)
        api_server.wait_ready(partial(answers_ok, f"{api.url}/readyz", ca_path=authority.cert_path))

        controllers = start("kube-controller-manager", controller_manager_flags(ports, api, serving, tokens))
        scheduler = start("kube-scheduler", scheduler_flags(ports, api, serving))
        kwok = start("kwok", kwok_flags(ports, api, stages=kwok_stages(files["kwok-stages"], into=work_dir)))
        for process, port in ((controllers, ports.controller_manager), (scheduler, ports.scheduler)):
            url = f"https://{LOOPBACK}:{port}/healthz"
            process.wait_ready(partial(answers_ok, url, ca_path=authority.cert_path))
        kwok.wait_ready(partial(answers_ok, f"http://{LOOPBACK}:{ports.kwok}/healthz"))
        yield api


@dataclass
class SecondApiServer:
    """Another API server on the same etcd, which a test can kill without an effect on others."""

    api: KubeApi
    port: int
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        argv = [*self.api.server_argv, f"--secure-port={self.port}"]  # the last one of a flag is in force
        self.process = Process.start(argv, name=f"kube-apiserver-{self.port}", log_dir=self.api.log_dir)
        self.process.wait_ready(partial(answers_ok, f"{self.url}/readyz", ca_path=self.api.authority.cert_path))

    def kill(self) -> None:
        if self.process is not None:
            self.process.stop(grace_s=0.0)


@contextmanager
def second_api_server(api: KubeApi) -> Iterator[SecondApiServer]:
    (port,) = free_ports(1)
    server = SecondApiServer(api=api, port=port)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _argv(program: Path, flags: Flags) -> tuple[str, ...]:
    return (str(program), *(f"--{flag}={value}" for flag, value in flags.items()))


def etcd_flags(ports: Ports, *, data_dir: Path) -> Flags:
    clients, peers = f"http://{LOOPBACK}:{ports.etcd}", f"http://{LOOPBACK}:{ports.etcd_peer}"
    return {
        "data-dir": data_dir,
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"default={peers}",
        "unsafe-no-fsync": "true",  # the data is discarded with the process
        "log-level": "warn",
    }


def api_server_flags(ports: Ports, authority: Authority, serving: KeyPair, tokens: KeyPair) -> Flags:
    return {
        "etcd-servers": f"http://{LOOPBACK}:{ports.etcd}",
        "bind-address": LOOPBACK,
        "secure-port": ports.api_server,
        "endpoint-reconciler-type": "none",  # a loopback address cannot be an endpoint of the service `kubernetes`
        "service-cluster-ip-range": SERVICE_CIDR,
        "tls-cert-file": serving.cert_path,
        "tls-private-key-file": serving.key_path,
        "client-ca-file": authority.cert_path,
        "authorization-mode": "Node,RBAC",
        "allow-privileged": "true",  # agents that set caps are privileged; Pod Security Standards refuse them elsewhere
        "service-account-issuer": ISSUER,
        "service-account-key-file": tokens.cert_path,
        "service-account-signing-key-file": tokens.key_path,
        **_aggregation_flags(authority),
    }


def _aggregation_flags(authority: Authority) -> Flags:
    """Return the flags with which the server forwards requests to an aggregated API in the name of their user."""
    proxy = authority.issue("front-proxy", common_name=FRONT_PROXY)
    return {
        "requestheader-client-ca-file": authority.cert_path,
        "requestheader-allowed-names": FRONT_PROXY,
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": proxy.cert_path,
        "proxy-client-key-file": proxy.key_path,
    }


def controller_manager_flags(ports: Ports, api: KubeApi, serving: KeyPair, tokens: KeyPair) -> Flags:
    return {
        **_component_flags(api, serving, user="system:kube-controller-manager", port=ports.controller_manager),
        "use-service-account-credentials": "true",
        "service-account-private-key-file": tokens.key_path,
        "root-ca-file": api.authority.cert_path,
        "kube-api-qps": 200,  # the defaults, 20 and 30, are meant for a shared control plane
        "kube-api-burst": 400,
        "horizontal-pod-autoscaler-sync-period": "1s",
    }


def scheduler_flags(ports: Ports, api: KubeApi, serving: KeyPair) -> Flags:
    return _component_flags(api, serving, user="system:kube-scheduler", port=ports.scheduler)


def kwok_flags(ports: Ports, api: KubeApi, *, stages: Path) -> Flags:
    return {
        "kubeconfig": api.certificate_kubeconfig("kwok", groups=[ADMINS]),
        "config": stages,
        "manage-all-nodes": "true",
        "node-lease-duration-seconds": NODE_LEASE_S,
        "server-address": f"{LOOPBACK}:{ports.kwok}",
    }


def kwok_stages(published: Path, *, into: Path) -> Path:
    """Join the published stages into the one file that kwok takes."""
    stages = [stage for path in sorted(published.glob("*.yaml")) for stage in read_manifests(path)]
    (completion,) = (stage for stage in stages if stage["metadata"]["name"] == "pod-complete")
    marked = {"key": f'.metadata.annotations["{COMPLETE}"]', "operator": "Exists"}
    completion["spec"]["selector"]["matchExpressions"].append(marked)
    path = into / "stages.yaml"
    path.write_text(yaml.safe_dump_all(stages))
    return path


def _component_flags(api: KubeApi, serving: KeyPair, *, user: str, port: int) -> Flags:
    return {
        "kubeconfig": api.certificate_kubeconfig(user),
        "bind-address": LOOPBACK,
        "secure-port": port,
        "tls-cert-file": serving.cert_path,
        "tls-private-key-file": serving.key_path,
        "leader-elect": "false",
    }
