"""Runs the pods of rendered manifests: the command, environment and volumes of each container, in an image's root or in
this machine's.

All pods share one network namespace, which is not that of the machine, so that each has the ports of the manifest; the
names of Services lead to its loopback address.
"""

import base64
import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import httpx

from tests.testbed import container
from tests.testbed.processes import LOOPBACK, Process
from tests.testbed.requirements import UnavailableError

CLONE_NEWNET: Final = 0x40000000
ADDRESS: Final = "192.0.2.1"  # of every pod, on the loopback device: Ray and the API server refuse 127.0.0.1
USER: Final = 65532  # of podSecurityContext of the chart
REFERENCE: Final = re.compile(r"\$\(([A-Za-z0-9_]+)\)")
Object = dict[str, Any]
Secrets = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class Root:
    """Is what a container runs in; `overlay_of` names a folder that lies below a layer of its own."""

    path: Path
    entrypoint: Sequence[str]
    environment: Mapping[str, str]
    user: int = USER
    overlay_of: str = ""
    binds: Sequence[str] = ()
    working_directory: str = "/"


class Roots(Protocol):
    """Gives each container a root of its own."""

    def root_for(self, image: str, *, folder: Path) -> Root: ...


class CheckoutRoots:
    """The checkout in this machine's root: for the commands of pods where no image can be built."""

    def __init__(self) -> None:
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            raise UnavailableError("only root may mount the volumes of a pod")
        self._checkout = Path(__file__).resolve().parents[2]

    def root_for(self, image: str, *, folder: Path) -> Root:  # noqa: ARG002 - every image is the checkout
        path = folder / "root"
        path.mkdir()
        prefixes = {str(Path(each).resolve()) for each in (self._checkout, sys.prefix, sys.base_prefix)}
        return Root(
            path=path,
            entrypoint=[sys.executable, "-m", "api.cli"],
            environment={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(self._checkout),
            },
            user=0,  # the checkout may lie in a folder of root
            overlay_of="/",
            binds=sorted(prefixes),
            working_directory=str(self._checkout),
        )


@dataclass(frozen=True, kw_only=True)
class Pod:
    """Is one workload's container, ready to start."""

    name: str
    kind: str
    template: Object
    secrets: Secrets
    config_maps: Secrets
    hosts: Sequence[str]
    node: str = "node-1"
    claims: Path = field(default=Path())

    @property
    def component(self) -> str:
        return str(self.template["metadata"]["labels"]["app.kubernetes.io/component"])

    @property
    def container(self) -> Object:
        (found,) = self.template["spec"]["containers"]
        return dict(found)

    @contextmanager
    def running(self, roots: Roots, *, folder: Path) -> Iterator[Process]:
        """Start the container; at the end it gets SIGTERM."""
        folder.mkdir(parents=True)
        root = roots.root_for(self.container["image"], folder=folder)
        user = self.container.get("securityContext", {}).get("runAsUser", root.user) if root.user else 0
        spec = folder / "spec.json"
        spec.write_text(json.dumps(self._spec(root, user, folder)))
        prefix = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        argv = [*prefix, sys.executable, "-I", "-S", container.__file__, str(spec)]
        with Process.start(argv, name=self.name, log_dir=folder) as process:
            yield process

    def is_ready(self) -> bool:
        """Probe the container as the kubelet would; without a probe a running one is ready."""
        probe = self.container.get("readinessProbe") or self.container.get("startupProbe")
        if probe is None:
            return True
        ports = {each["name"]: each["containerPort"] for each in self.container.get("ports", ())}
        what = probe.get("httpGet") or probe.get("tcpSocket")
        port = ports.get(what["port"], what["port"])
        try:
            if "httpGet" not in probe:
                socket.create_connection((LOOPBACK, port), timeout=2).close()
                return True
            scheme = what.get("scheme", "HTTP").lower()
            url = f"{scheme}://{LOOPBACK}:{port}{what['path']}"
            return httpx.get(url, verify=False, trust_env=False, timeout=5).is_success  # noqa: S501 - as the kubelet
        except (OSError, httpx.TransportError):
            return False

    def memory_limit_mib(self) -> float:
        text: str = self.container["resources"]["limits"]["memory"]
        number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text).groups()  # type: ignore[union-attr]
        return float(number) * {"Mi": 1, "Gi": 1024}[unit]

    def _spec(self, root: Root, user: int, folder: Path) -> Object:
        environment = {**root.environment, **self._environment()}
        hosts = folder / "hosts"
        hosts.write_text(f"{LOOPBACK} localhost {' '.join(self.hosts)}\n")
        argv = [*(self.container.get("command") or root.entrypoint), *self.container.get("args", ())]
        binds = [{"source": bind, "at": bind, "read_only": True} for bind in root.binds]
        return {
            "root": str(root.path),
            "overlay_of": root.overlay_of,
            "volumes": [
                {"source": str(hosts), "at": "/etc/hosts", "read_only": True},
                *self._volumes(user, folder / "volumes"),
                *binds,
            ],
            "working_directory": root.working_directory,
            "uid": user,
            "gid": user,
            "argv": [REFERENCE.sub(lambda found: environment[found[1]], each) for each in argv],
            "environment": environment,
        }

    def _environment(self) -> dict[str, str]:
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": "fleet",
            "spec.nodeName": self.node,
            "status.podIP": ADDRESS,
            "status.hostIP": ADDRESS,
        }
        values = {}
        for entry in self.container.get("env", ()):
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                values[entry["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                values[entry["name"]] = self.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
            else:
                values[entry["name"]] = entry.get("value", "")
        return values

    def _volumes(self, user: int, folder: Path) -> Iterator[Object]:
        volumes = {each["name"]: each for each in self.template["spec"].get("volumes", ())}
        for mount in self.container.get("volumeMounts", ()):
            source = self._content(volumes[mount["name"]], folder / mount["name"], user)
            yield {"source": str(source), "at": mount["mountPath"], "read_only": mount.get("readOnly", False)}

    def _content(self, volume: Object, folder: Path, user: int) -> Path:
        if "persistentVolumeClaim" in volume:
            folder = self.claims / volume["persistentVolumeClaim"]["claimName"]
        folder.mkdir(parents=True, exist_ok=True)
        files: Mapping[str, str] = {}
        if "secret" in volume:
            files = _chosen(volume["secret"], self.secrets[volume["secret"]["secretName"]])
        elif "configMap" in volume:
            files = _chosen(volume["configMap"], self.config_maps[volume["configMap"]["name"]])
        for name, content in files.items():
            path = folder / name
            path.write_text(content)
            path.chmod(0o440)
        for path in (folder, *folder.iterdir()):
            os.chown(path, user, user)
        return folder


def pods_of(objects: Iterable[Object], *, secrets: Secrets, claims: Path, node: str = "node-1") -> list[Pod]:
    """Return a pod for each workload; `secrets` are those that exist beside the manifests."""
    listed = [each for each in objects if each]
    found = {
        each["metadata"]["name"]: {key: base64.b64decode(value).decode() for key, value in each["data"].items()}
        | each.get("stringData", {})
        for each in listed
        if each["kind"] == "Secret"
    }
    config_maps = {each["metadata"]["name"]: each["data"] for each in listed if each["kind"] == "ConfigMap"}
    services = [each["metadata"] for each in listed if each["kind"] == "Service"]
    hosts = [host for each in services for host in (each["name"], f"{each['name']}.{each['namespace']}.svc")]
    return [
        Pod(
            name=each["metadata"]["name"],
            kind=each["kind"],
            template=each["spec"]["template"],
            secrets={**secrets, **found},
            config_maps=config_maps,
            hosts=hosts,
            node=node,
            claims=claims,
        )
        for each in listed
        if each["kind"] in {"DaemonSet", "Deployment", "Job"}
    ]


@contextmanager
def own_network() -> Iterator[None]:
    """Put this thread, and the processes that it starts, into a network namespace with loopback only."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if libc.unshare(CLONE_NEWNET) != 0:
        os.close(before)
        raise UnavailableError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    try:
        for command in ("link set lo up", f"address add {ADDRESS}/32 dev lo", "route add default dev lo"):
            subprocess.run(["ip", *command.split()], check=True)
        yield
    finally:
        libc.setns(before, CLONE_NEWNET)
        os.close(before)


def resident_mib(process: Process) -> float:
    """Return the memory of a container's processes without what they share with others counted twice."""
    pids, waiting = [], [process.pid]
    while waiting:
        pid = waiting.pop()
        pids.append(pid)
        for task in Path(f"/proc/{pid}/task").iterdir():
            waiting += [int(child) for child in (task / "children").read_text().split()]
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(found[1]) for text in rollups if (found := re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE))) / 1024


def _chosen(volume: Object, files: Mapping[str, str]) -> Mapping[str, str]:
    if "items" not in volume:
        return files
    return {item["path"]: files[item["key"]] for item in volume["items"]}
