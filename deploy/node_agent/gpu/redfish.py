"""GPUs through the server's BMC, out of band: power limits only, independent of the operating system.

The first of these resources that exists is used:

    Systems/*/Processors/*   of type GPU, whose EnvironmentMetrics has PowerLimitWatts
    Chassis/*                whose EnvironmentMetrics has PowerLimitWatts (modules of a CPU and its GPUs)
    Chassis/*/Power          PowerControl[].PowerLimit: the previous schema, of a whole server

PowerLimitWatts is an excerpt of a Control: SetPoint applies while ControlMode is not Disabled.  Limits are the BMC's
and survive reloads of the driver and reboots, so `epoch` never increases.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.node_agent.gpu.errors import DriverGoneError, GpuLostError, NotSupportedError
from deploy.node_agent.gpu.interface import NO_CAPS, Caps, GpuIdentity, GpuLimits, GpuReading
from deploy.node_agent.gpu.redfish_client import ROOT, ChangedError, RedfishClient, Resource

PERIOD_S = 2.0
FRESH_S = 1.0  # one poll reads telemetry and caps from the same resource
WRITE_TRIES = 4
DISABLED = "Disabled"
_GPU_TYPES = ("GPU", "Accelerator")
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    identity: GpuIdentity
    path: str
    member: int | None = None  # of PowerControl, in the old schema


class RedfishDriver:
    driver = "redfish"
    period_s = PERIOD_S
    reports_locked_clock = True  # a BMC has no locked clocks

    def __init__(self, client: RedfishClient, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.epoch = 1
        self._client, self._now_s = client, now_s
        self._targets = {target.identity.uuid: target for target in _discovered(client)}
        self._read: dict[str, tuple[float, Resource]] = {}
        if not self._targets:
            raise NotSupportedError("redfish: the BMC lists nothing with a power limit")

    def identities(self) -> Sequence[GpuIdentity]:
        return [target.identity for target in self._targets.values()]

    def limits(self, uuid: str) -> GpuLimits:
        """Return the limits of the control; the previous schema has the maximum only."""
        target, body = self._target(uuid), self._fetched(uuid).body
        if target.member is not None:
            return GpuLimits(max_w=_number(_control(target, body), "PowerCapacityWatts"))
        limit = body.get("PowerLimitWatts") or {}
        max_w = _number(limit, "AllowableMax")
        default_w = _number(limit, "DefaultSetPoint")
        return GpuLimits(
            min_w=_number(limit, "AllowableMin"), max_w=max_w, default_w=max_w if default_w is None else default_w
        )

    def read(self, uuid: str) -> GpuReading:
        """Return power, energy and temperature, all that a BMC reports."""
        target = self._target(uuid)
        body = self._fetched(uuid, fresh=True).body
        if target.member is not None:
            return GpuReading(power_w=_number(_control(target, body), "PowerConsumedWatts"))
        joules, kwh = _number(body.get("EnergyJoules"), "Reading"), _number(body.get("EnergykWh"), "Reading")
        return GpuReading(
            power_w=_number(body.get("PowerWatts"), "Reading"),
            energy_j=joules if joules is not None or kwh is None else kwh * JOULES_PER_KWH,
            temperature_c=_number(body.get("TemperatureCelsius"), "Reading"),
        )

    def enforced(self, uuid: str) -> Caps:
        """Return the set point, while its control is not disabled."""
        target, body = self._target(uuid), self._fetched(uuid).body
        if target.member is not None:
            limit = _control(target, body).get("PowerLimit")
            return Caps(power_limit_w=_number(limit, "LimitInWatts"))
        limit = body.get("PowerLimitWatts") or {}
        return NO_CAPS if limit.get("ControlMode") == DISABLED else Caps(power_limit_w=_number(limit, "SetPoint"))

    def configured(self, uuid: str) -> Caps:
        """Return the enforced caps: the BMC reports nothing else."""
        return self.enforced(uuid)

    def set_power_limit(self, uuid: str, watts: float | None) -> None:
        """Set whole watts, rounded down; a resource that changed meanwhile is read again first."""
        target = self._target(uuid)
        for left in reversed(range(WRITE_TRIES)):
            resource = self._fetched(uuid, fresh=True)
            self._read.pop(uuid, None)
            try:
                self._client.patch(target.path, _wanted(target, resource.body, watts), etag=resource.etag)
            except ChangedError:
                if not left:
                    raise
            else:
                return

    def lock_clock(self, uuid: str, mhz: int | None) -> None:
        """Raise NotSupportedError for a clock, because a BMC locks no clocks."""
        if mhz is not None:
            raise NotSupportedError(f"{uuid}: a BMC locks no clocks")

    def close(self) -> None:
        self._client.close()

    def _target(self, uuid: str) -> Target:
        if uuid not in self._targets:
            raise GpuLostError(f"{uuid}: the BMC does not list this GPU")
        return self._targets[uuid]

    def _fetched(self, uuid: str, *, fresh: bool = False) -> Resource:
        at_s, resource = self._read.get(uuid, (0.0, None))
        now_s = self._now_s()
        if fresh or resource is None or now_s - at_s > FRESH_S:
            resource = self._client.get(self._targets[uuid].path)
            self._read[uuid] = (now_s, resource)
        return resource


def _wanted(target: Target, body: dict[str, Any], watts: float | None) -> dict[str, Any]:
    """Return the least change; empty objects stand for the unchanged members of an array before the changed one."""
    whole = None if watts is None else int(watts)
    if target.member is not None:
        limit = {"PowerLimit": {"LimitInWatts": whole}}
        return {"PowerControl": [*({} for _ in range(target.member)), limit]}
    limit = body.get("PowerLimitWatts") or {}
    if whole is None:
        mode = {"ControlMode": DISABLED} if "ControlMode" in limit else {}
        return {"PowerLimitWatts": {"SetPoint": None} | mode}
    # A set point of a disabled control is refused, or kept without effect.
    mode = {"ControlMode": "Manual"} if limit.get("ControlMode") == DISABLED else {}
    return {"PowerLimitWatts": {"SetPoint": whole} | mode}


def _discovered(client: RedfishClient) -> list[Target]:
    root = client.get(ROOT).body
    for find in (_processors, _chassis, _legacy):
        found = list(find(client, root))
        if found:
            return found
    return []


def _processors(client: RedfishClient, root: dict[str, Any]) -> Iterator[Target]:
    for system in _members(client, root, "Systems"):
        for path in _members(client, client.get(system).body, "Processors"):
            body = client.get(path).body
            if body.get("ProcessorType") in _GPU_TYPES:
                yield from _environment(client, body, path)


def _chassis(client: RedfishClient, root: dict[str, Any]) -> Iterator[Target]:
    for path in _members(client, root, "Chassis"):
        yield from _environment(client, client.get(path).body, path)


def _environment(client: RedfishClient, body: dict[str, Any], path: str) -> Iterator[Target]:
    """Iterate over the resources with a limit in their EnvironmentMetrics."""
    place = _place(body, "EnvironmentMetrics")
    if place is None or (_try(client, place) or {}).get("PowerLimitWatts") is None:
        return
    yield Target(identity=_identity(body, path), path=place)


def _legacy(client: RedfishClient, root: dict[str, Any]) -> Iterator[Target]:
    for path in _members(client, root, "Chassis"):
        place = _place(client.get(path).body, "Power")
        controls = (_try(client, place) or {}).get("PowerControl", []) if place else []
        for at, control in enumerate(controls):
            if "PowerLimit" in control:
                name = str(control.get("Name") or path)
                identity = GpuIdentity(uuid=f"{place}#/PowerControl/{at}", name=name)
                yield Target(identity=identity, path=str(place), member=at)


def _try(client: RedfishClient, place: str) -> dict[str, Any] | None:
    """Return None for a resource that is linked and missing."""
    try:
        return client.get(place).body
    except NotSupportedError:
        return None


def _members(client: RedfishClient, body: dict[str, Any], name: str) -> list[str]:
    place = _place(body, name)
    return [] if place is None else client.members(place)


def _place(body: dict[str, Any], name: str) -> str | None:
    linked = body.get(name)
    return str(linked["@odata.id"]) if isinstance(linked, dict) and "@odata.id" in linked else None


def _identity(body: dict[str, Any], path: str) -> GpuIdentity:
    """Use the UUID where there is one, because drivers report it too."""
    return GpuIdentity(
        uuid=str(body.get("UUID") or body.get("@odata.id") or path),
        name=str(body.get("Model") or body.get("Name") or path),
    )


def _control(target: Target, body: dict[str, Any]) -> dict[str, Any]:
    controls, member = body.get("PowerControl", []), target.member or 0
    if member >= len(controls) or not isinstance(controls[member], dict):
        raise DriverGoneError(f"{target.path}: PowerControl has no member {member} any more")
    return dict(controls[member])


def _number(body: Any, name: str) -> float | None:
    value = body.get(name) if isinstance(body, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
