"""A BMC on loopback that follows the Redfish schemas for power limits.

Service root, SessionService, Systems, Processors, Chassis, EnvironmentMetrics (PowerLimitWatts as an excerpt of a
Control), and Power of the previous schema.  ETags change with every write; a PATCH without If-Match returns 428,
one with an old ETag 412; a disabled control takes no set point; sessions can expire.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USER, PASSWORD = "fleet", "a:password-of-the-bmc"
SESSIONS = "/redfish/v1/SessionService/Sessions"
Json = dict[str, Any]


def link(path: str) -> Json:
    return {"@odata.id": path}


def collection(path: str, members: list[str]) -> Json:
    return {
        "@odata.id": path,
        "@odata.type": "#Collection.Collection",
        "Members": [link(member) for member in members],
        "Members@odata.count": len(members),
    }


@dataclass
class Bmc:
    """The resources and the injected failures of a BMC."""

    resources: dict[str, Json] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)  # method, path, body
    ignored: int = 0  # number of coming PATCHes that return success without effect
    foreign_writes: int = 0  # number of coming PATCHes before which another client writes
    max_sessions: int = 2

    def add(self, path: str, body: Json) -> None:
        self.resources[path] = {"@odata.id": path} | body

    def etag(self, path: str) -> str:
        content = json.dumps(self.resources[path], sort_keys=True).encode()
        return f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    def patched(self, path: str, body: Json) -> tuple[int, Json]:
        """Return a status and a body; a refused request has no effect."""
        before = self.resources[path]
        limit = (body.get("PowerLimitWatts") or {}) if "PowerLimitWatts" in body else None
        if limit is not None:
            violation = _violation(before["PowerLimitWatts"], limit)
            if violation:
                return 400, {
                    "error": {"code": "Base.1.18.GeneralError", "@Message.ExtendedInfo": [{"Message": violation}]}
                }
        if self.ignored:
            self.ignored -= 1
        else:
            self.resources[path] = merged(before, body)
        return 204, {}


def _violation(control: Json, change: Json) -> str | None:
    point = change.get("SetPoint", control.get("SetPoint"))
    mode = change.get("ControlMode", control.get("ControlMode"))
    if mode == "Disabled":
        return None if change.get("SetPoint") is None else "PropertyValueConflict: SetPoint with ControlMode Disabled"
    if point is None or not control["AllowableMin"] <= point <= control["AllowableMax"]:
        return f"PropertyValueOutOfRange: {point} for SetPoint"
    return None


def merged(before: Any, change: Any) -> Any:
    """Merge as PATCH does: objects by property, arrays by index; an empty object changes nothing."""
    if isinstance(before, dict) and isinstance(change, dict):
        return before | {name: merged(before.get(name), value) for name, value in change.items()}
    if isinstance(before, list) and isinstance(change, list):
        return [merged(old, new) for old, new in zip(before, change, strict=False)] + before[len(change) :]
    return change


def hgx(*, gpus: int = 2, mode: str = "Manual") -> Bmc:
    """A baseboard with GPUs, and a CPU among its processors."""
    bmc, base = Bmc(), "/redfish/v1/Systems/HGX_Baseboard_0"
    processors = [f"{base}/Processors/GPU_SXM_{at}" for at in range(1, gpus + 1)]
    bmc.add("/redfish/v1/", {"Systems": link("/redfish/v1/Systems"), "Chassis": link("/redfish/v1/Chassis")})
    bmc.add("/redfish/v1/Systems", collection("/redfish/v1/Systems", [base]))
    bmc.add(base, {"Processors": link(f"{base}/Processors")})
    bmc.add(f"{base}/Processors", collection(f"{base}/Processors", [f"{base}/Processors/CPU_0", *processors]))
    bmc.add(f"{base}/Processors/CPU_0", {"ProcessorType": "CPU", "Model": "A CPU"})
    for at, path in enumerate(processors):
        metrics = f"{path}/EnvironmentMetrics"
        model = {"ProcessorType": "GPU", "UUID": f"uuid-{at}", "Model": "NVIDIA H100 80GB HBM3"}
        bmc.add(path, model | {"EnvironmentMetrics": link(metrics)})
        limit = {"SetPoint": 700 if mode != "Disabled" else None, "ControlMode": mode}
        limit |= {"AllowableMin": 200, "AllowableMax": 700}
        readings = {"PowerWatts": {"Reading": 512.5}, "TemperatureCelsius": {"Reading": 51}}
        bmc.add(metrics, readings | {"EnergyJoules": {"Reading": 1e6}, "PowerLimitWatts": limit})
    bmc.add("/redfish/v1/Chassis", collection("/redfish/v1/Chassis", []))
    return bmc


def modules() -> Bmc:
    """Chassis of a CPU and its GPUs, without a limit at any processor."""
    bmc, chassis = Bmc(), "/redfish/v1/Chassis/HGX_ProcessorModule_0"
    bmc.add("/redfish/v1/", {"Chassis": link("/redfish/v1/Chassis")})
    bmc.add("/redfish/v1/Chassis", collection("/redfish/v1/Chassis", [chassis]))
    bmc.add(chassis, {"Name": "module 0", "EnvironmentMetrics": link(f"{chassis}/EnvironmentMetrics")})
    limit = {"SetPoint": 2000, "ControlMode": "Automatic", "AllowableMin": 800, "AllowableMax": 2400}
    bmc.add(f"{chassis}/EnvironmentMetrics", {"EnergykWh": {"Reading": 2.0}, "PowerLimitWatts": limit})
    return bmc


def legacy() -> Bmc:
    """A server of the previous schema: one limit, at the second of two controls."""
    bmc, chassis = Bmc(), "/redfish/v1/Chassis/1"
    bmc.add("/redfish/v1/", {"Chassis": link("/redfish/v1/Chassis")})
    bmc.add("/redfish/v1/Chassis", collection("/redfish/v1/Chassis", [chassis]))
    bmc.add(chassis, {"Power": link(f"{chassis}/Power")})
    limit = {"LimitInWatts": None, "LimitException": "NoAction"}
    controls = [
        {"Name": "A fan wall", "PowerConsumedWatts": 90},
        {"Name": "Server", "PowerConsumedWatts": 4200, "PowerCapacityWatts": 6600, "PowerLimit": limit},
    ]
    bmc.add(f"{chassis}/Power", {"PowerControl": controls})
    return bmc


class _Handler(BaseHTTPRequestHandler):
    bmc: Bmc
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each body waits for the delayed acknowledgement of its headers

    def do_GET(self) -> None:
        self._call_once("GET")

    def do_PATCH(self) -> None:
        self._call_once("PATCH")

    def do_POST(self) -> None:
        self._call_once("POST")

    def do_DELETE(self) -> None:
        self._call_once("DELETE")

    def log_message(self, *_args: Any) -> None:
        """Suppress the log; tests use `requests`."""

    def _call_once(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.bmc.requests.append((method, self.path, deepcopy(body)))
        status, answer, headers = self._response(method, body)
        content = json.dumps(answer).encode() if answer else b""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _response(self, method: str, body: Any) -> tuple[int, Json, dict[str, str]]:
        if method == "POST" and self.path == SESSIONS:
            return self._session(body)
        if self.path != "/redfish/v1/" and not self._known():
            return 401, {}, {"WWW-Authenticate": 'Basic realm="bmc"'}
        if method == "DELETE":
            self.bmc.sessions.discard(self.path.rpartition("/")[2])
            return 204, {}, {}
        if self.path not in self.bmc.resources:
            return 404, {}, {}
        return self._patch(body) if method == "PATCH" else self._get()

    def _get(self) -> tuple[int, Json, dict[str, str]]:
        return 200, self.bmc.resources[self.path], {"ETag": self.bmc.etag(self.path)}

    def _patch(self, body: Any) -> tuple[int, Json, dict[str, str]]:
        if self.bmc.foreign_writes:
            self.bmc.foreign_writes -= 1
            self.bmc.resources[self.path]["Description"] = secrets.token_hex(4)
        given = self.headers.get("If-Match")
        if given is None:
            return 428, {}, {}
        if given != self.bmc.etag(self.path):
            return 412, {}, {}
        return (*self.bmc.patched(self.path, body), {})

    def _session(self, body: Json) -> tuple[int, Json, dict[str, str]]:
        if (body.get("UserName"), body.get("Password")) != (USER, PASSWORD):
            return 401, {}, {}
        if len(self.bmc.sessions) >= self.bmc.max_sessions:
            return 503, {"error": {"message": "SessionLimitExceeded"}}, {}
        token = secrets.token_hex(8)
        self.bmc.sessions.add(token)
        place = f"{SESSIONS}/{token}"
        return 201, link(place), {"X-Auth-Token": token, "Location": place}

    def _known(self) -> bool:
        basic = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"
        return self.headers.get("X-Auth-Token") in self.bmc.sessions or self.headers.get("Authorization") == basic


@contextmanager
def answering(bmc: Bmc) -> Iterator[str]:
    """Serve until the block ends; yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"bmc": bmc}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
