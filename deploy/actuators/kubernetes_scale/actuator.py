"""The actuator of Kubernetes objects with a `scale` subresource: one object per part.

    GET   /apis/GROUP/VERSION                       the resource of the kind, and whether it has a scale
    GET   .../RESOURCE/NAME, .../NAME/scale         owners, the requested count, the selector of pods
    GET   .../pods?labelSelector=...                which replicas are ready, and which are marked to stop
    GET   .../horizontalpodautoscalers (and others) who else scales the object
    PATCH .../pods/POD                              the mark of a replica that is to stop
    PATCH .../NAME/scale                            a JSON patch that tests the resource version and the old count
    PATCH .../NAME                                  the same of a field, for a kind without scale (`count_field`)

The pod template is never written.  Where somebody else owns the count (`owners`), the actuator reads but does not
write, and names the owner.  A drain (`replicas`, `drain`) is derived from the pods' annotations and the engines' pages,
so any controller continues it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import Field

from api.schemas.applications import KubernetesScale, ScaledObject
from deploy.actuators.base import Change, Drain, DrainState, Step, TargetSnapshot
from deploy.actuators.kubernetes_scale.count_field import count_field
from deploy.actuators.kubernetes_scale.discovery import ScalePath, find_path, group_of
from deploy.actuators.kubernetes_scale.drain import drain_state
from deploy.actuators.kubernetes_scale.engine_load import read_loads
from deploy.actuators.kubernetes_scale.owners import REPLICAS_FIELD, Autoscalers, list_autoscalers, owners_of
from deploy.actuators.kubernetes_scale.replicas import (
    LEADER_WORKER_SET_GROUP,
    SET_NAME_LABEL,
    Replica,
    extent,
    is_ordered,
    kept,
    mark,
    marked,
    replicas_of,
    running,
    to_stop,
    unmark,
)
from deploy.actuators.kubernetes_scale.warnings import pod_warnings
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError, OvertakenError
from deploy.common.kubernetes_client import Kubernetes, RefusedError
from deploy.common.kubernetes_objects import Metadata, ObjectPart, PodList, parsed
from deploy.common.text import joined

ATTEMPTS = 5  # a write of the status changes the resource version too


class _Ordinals(ObjectPart):
    start: int = 0


class _Spec(ObjectPart):
    ordinals: _Ordinals = _Ordinals()  # of a StatefulSet


class _Object(ObjectPart):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: Mapping[str, Any] = Field(default={})

    @property
    def replica_failure(self) -> str | None:
        """Return why the object's controller cannot create pods."""
        for condition in self.status.get("conditions") or ():
            if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
                return str(condition.get("message") or condition.get("reason"))
        return None


class _ScaleSpec(ObjectPart):
    replicas: int = 0  # the API server leaves out 0


class _ScaleStatus(ObjectPart):
    replicas: int = 0
    selector: str = ""


class _Scale(ObjectPart):
    metadata: Metadata
    spec: _ScaleSpec = _ScaleSpec()
    status: _ScaleStatus = _ScaleStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One object as it was read."""

    scaled: ScaledObject
    path: ScalePath
    scale: _Scale
    object: _Object
    replicas: Sequence[Replica] | None  # None: the scale names no pods

    @property
    def running(self) -> int:
        return self.scale.status.replicas if self.replicas is None else running(self.replicas)


@dataclass(frozen=True, slots=True)
class KubernetesScaleActuator:
    kube: Kubernetes
    http: httpx.AsyncClient  # to the engines
    application: KubernetesScale
    clock: Clock = field(default_factory=Clock)

    async def observe(self) -> TargetSnapshot:
        autoscalers = await list_autoscalers(self.kube, namespace=self.application.namespace)
        names = sorted(self.application.objects)
        found = dict(zip(names, await asyncio.gather(*map(self._read, names)), strict=True))
        drains, drain_reports = await self._drains(found)
        notes = [note for part in found.values() for note in self._notes(part, autoscalers)]
        notes += [f"owners are not known: {error}" for error in autoscalers.unread]
        warnings = [text for part in found.values() for text in self._warnings(part)]
        return TargetSnapshot(
            requested={name: part.scale.spec.replicas for name, part in found.items()},
            running={name: part.running for name, part in found.items()},
            note=joined(*notes),
            warning=joined(*drain_reports, *warnings),
            drains=drains,
        )

    async def apply(self, change: Change) -> None:
        match change:
            case Step():
                await self._scale(change)
            case Drain():
                await self._mark(change)
            case _:
                raise ActuationError(f"objects of namespace {self.application.namespace} have no user_config")

    async def _scale(self, step: Step) -> None:
        """Patch in the step's count, if the count still has the value that the step started from."""
        name, path = self._name(step.part), await self._path(self.application.objects[step.part])
        version, refusal = "", None
        for _ in range(ATTEMPTS):
            autoscalers = await list_autoscalers(self.kube, namespace=self.application.namespace)
            document = await self._document(path.object, name)
            owned = parsed(_Object, document)
            if refusal is not None and owned.metadata.resource_version == version:
                raise refusal  # the object did not change: the server refuses the count itself
            scale = await self._scale_of(self.application.objects[step.part], path, document, name)
            self._refuse_owned(step.part, owned, autoscalers)
            if scale.spec.replicas == step.replicas_after:
                return
            if scale.spec.replicas != step.replicas_before:
                manager = owned.metadata.last_manager(*self._managed_field(step.part)) or "an unknown manager"
                raise OvertakenError(f"{name} changed since it was read; its count was last written by {manager}")
            version = owned.metadata.resource_version
            counted = count_field(self.application.objects[step.part])
            try:
                if counted is None:
                    await self.kube.patch(path.scale, list(_scaling_patch(version, step)))
                else:
                    await self.kube.patch(path.object, list(counted.patch(document, step)))
            except RefusedError as error:
                if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}:
                    raise
                refusal = error
            else:
                return
        raise OvertakenError(f"{name} changed before each of {ATTEMPTS} writes: {refusal}")

    async def _mark(self, drain: Drain) -> None:
        part, name = await self._read(drain.part), self._name(drain.part)
        autoscalers = await list_autoscalers(self.kube, namespace=self.application.namespace)
        self._refuse_owned(drain.part, part.object, autoscalers)
        if self.application.drain is None:
            raise ActuationError(f"{name} has no drain")
        replicas = list(part.replicas or ())
        chosen: list[Replica] = []
        ordered = True
        if extent(replicas) > drain.keep:
            ordered = is_ordered(replicas, of=name)
            port, pods = self.application.drain.metrics_port, [replica.leader for replica in replicas]
            loads = {} if ordered else await read_loads(self.http, pods, port=port)
            known = {pod: load.requests for pod, load in loads.items() if load.requests is not None}
            chosen = to_stop(replicas, keep=drain.keep, ordered=ordered, load=known)
        already = {replica.name for replica in marked(replicas)}
        stopping = {replica.name for replica in chosen}
        for replica in replicas:
            if replica.leader.drains and replica.name not in stopping:
                await self._annotate(replica, unmark(replica))
        for replica in chosen:
            if replica.name not in already:
                await self._annotate(replica, mark(replica, now=self.clock.now(), ordered=ordered))

    async def _annotate(self, replica: Replica, patch: Mapping[str, Any]) -> None:
        try:
            await self.kube.patch(f"{self._pods_path}/{replica.name}", patch)
        except RefusedError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:  # the pod ended or was replaced
                raise

    def _refuse_owned(self, part: str, owned: _Object, autoscalers: Autoscalers) -> None:
        for error in autoscalers.unread:
            raise error
        field = self._managed_field(part)
        if owners := list(owners_of(self.application.objects[part], owned.metadata, autoscalers, count_field=field)):
            raise ActuationError(
                f"{self._name(part)} is scaled by {'; '.join(owners)}: publish the count to that owner "
                "(mode `recommend`), or remove it"
            )

    async def _drains(self, found: Mapping[str, _Part]) -> tuple[Mapping[str, DrainState], list[str | None]]:
        drain = self.application.drain
        if drain is None:
            return {}, []
        of_part = {name: marked(part.replicas) for name, part in found.items() if part.replicas is not None}
        pods = [replica.leader for replicas in of_part.values() for replica in replicas]
        loads = await read_loads(self.http, pods, port=drain.metrics_port)
        states, reports = {}, []
        for name, replicas in of_part.items():
            keep, now = kept(found[name].replicas or ()), self.clock.now()
            states[name], report = drain_state(replicas, keep=keep, loads=loads, drain=drain, now=now)
            reports.append(report)
        return states, reports

    def _notes(self, part: _Part, autoscalers: Autoscalers) -> Iterator[str]:
        """Yield the conditions that keep the counts from being written, or the pods from following them."""
        name = f"{part.scaled.kind} {part.scaled.name}"
        field = _managed_field(part.scaled)
        if owners := list(owners_of(part.scaled, part.object.metadata, autoscalers, count_field=field)):
            yield f"{name} is scaled by {'; '.join(owners)}"
        if part.object.metadata.deletion_timestamp is not None:
            yield f"{name} is being deleted"
        if (reason := part.object.replica_failure) is not None:
            yield f"{name} reports ReplicaFailure: {reason}"

    def _warnings(self, part: _Part) -> Iterator[str]:
        name = f"{part.scaled.kind} {part.scaled.name}"
        if part.replicas is None:
            yield f"the scale of {name} has no selector of pods: its status.replicas count as running"
            if self.application.drain is not None:
                yield f"{name} is not drained"
        elif part.replicas:
            yield from pod_warnings(name, part.replicas[0].leader, drain=self.application.drain)

    def _name(self, part: str) -> str:
        scaled = self.application.objects[part]
        return f"{scaled.kind} {self.application.namespace}/{scaled.name}"

    @property
    def _pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.application.namespace}/pods"

    async def _path(self, scaled: ScaledObject) -> ScalePath:
        needs_scale = count_field(scaled) is None
        return await find_path(self.kube, scaled, namespace=self.application.namespace, needs_scale=needs_scale)

    async def _read(self, name: str) -> _Part:
        scaled = self.application.objects[name]
        path = await self._path(scaled)
        document = await self._document(path.object, self._name(name))
        owned = parsed(_Object, document)
        scale = await self._scale_of(scaled, path, document, self._name(name))
        in_groups = group_of(scaled.api_version) == LEADER_WORKER_SET_GROUP
        selector = f"{SET_NAME_LABEL}={scaled.name}" if in_groups else scale.status.selector
        replicas = None
        if selector:
            pods = parsed(PodList, await self.kube.get(self._pods_path, labelSelector=selector)).items
            replicas = replicas_of(pods, in_groups=in_groups, first_ordinal=owned.spec.ordinals.start)
        return _Part(scaled=scaled, path=path, scale=scale, object=owned, replicas=replicas)

    async def _scale_of(self, scaled: ScaledObject, path: ScalePath, document: Any, name: str) -> _Scale:
        """Read the scale of an object, or compose it from the field with the count."""
        if (counted := count_field(scaled)) is None:
            return parsed(_Scale, await self._document(path.scale, name))
        return _Scale(
            metadata=parsed(_Object, document).metadata,
            spec=_ScaleSpec(replicas=counted.replicas(document)),
            status=_ScaleStatus(selector=counted.selector),
        )

    def _managed_field(self, part: str) -> tuple[str, ...]:
        return _managed_field(self.application.objects[part])

    async def _document(self, path: str, name: str) -> Any:
        try:
            return await self.kube.get(path)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            raise ActuationError(f"there is no {name}: {error}") from error


def kubernetes_scale_actuators(
    kube: Kubernetes, http: httpx.AsyncClient, *, clock: Clock | None = None
) -> Callable[[KubernetesScale], KubernetesScaleActuator]:
    return lambda application: KubernetesScaleActuator(kube, http, application, clock or Clock())


def _managed_field(scaled: ScaledObject) -> tuple[str, ...]:
    counted = count_field(scaled)
    return REPLICAS_FIELD if counted is None else counted.managed_fields


def _scaling_patch(version: str, step: Step) -> Iterator[dict[str, Any]]:
    """Yield operations that set the count, and fail if the object is no longer of this resource version."""
    yield {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    if step.replicas_before:  # a count of 0 is absent
        yield {"op": "test", "path": "/spec/replicas", "value": step.replicas_before}
    yield {"op": "add", "path": "/spec/replicas", "value": step.replicas_after}
