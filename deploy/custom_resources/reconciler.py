"""Reconciles the custom resources of a cluster with the documents of the API, by the leader of the controllers only.

FleetTarget  ──> PUT of the target, if the object owns it ──> its plan, report and freeze ──> conditions
PlanRequest  ──> POST of the request, once per generation ──> the plan ──> conditions
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from api.client import (
    ApiError,
    AsyncClient,
    ConnectionFailedError,
    NotFoundError,
    PreconditionFailedError,
    ProblemError,
    ServerError,
)
from api.client.calls import Call, Versioned
from api.client.operations import create_target, submit_plan
from api.schemas.jobs import Job, JobState
from api.schemas.plans import PlanRecord
from api.schemas.projects import PROJECT_HEADER
from api.schemas.targets import Freeze, Target, TargetSpec, TargetStatus
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError
from deploy.common.kubernetes_client import Kubernetes, listed
from deploy.common.kubernetes_objects import parsed
from deploy.common.leader_election import Leadership
from deploy.common.leader_loop import attempt
from deploy.custom_resources import conditions as state
from deploy.custom_resources.conditions import Condition, Kind, Status
from deploy.custom_resources.objects import API, FINALIZER, DeletionPolicy, FleetTarget, PlanRequestObject
from deploy.custom_resources.ownership import InSync, NotOurs, digest_of, may_delete, resolve, states_plan
from fleet.documents import dotted, validation_problems
from planner.request import PlanRequest

log = structlog.get_logger()

TIMEOUT_S: Final = 120.0
T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)
ResourceT = TypeVar("ResourceT", FleetTarget, PlanRequestObject)


class InvalidSpecError(ActuationError):
    """The specification breaks a rule of the API."""


@dataclass(slots=True, kw_only=True)
class CustomResources:
    api: AsyncClient
    kubernetes: Kubernetes
    leadership: Leadership
    clock: Clock = field(default_factory=Clock)
    period_s: float = 5.0
    observe_only: bool = False  # write nothing to the API
    namespace: str | None = None  # None: all namespaces
    _plans: dict[str, PlanRecord] = field(default_factory=dict)  # a stored plan does not change

    async def run(self) -> None:
        """Reconcile every period while this process leads, until cancelled."""
        while True:
            if self.leadership.holds:
                await attempt(self.reconcile, timeout_s=TIMEOUT_S)
            await self.clock.sleep(self.period_s)

    async def reconcile(self) -> bool:
        """Reconcile every object once; one that fails does not stop the others."""
        freeze = (await self.api.get_freeze()).document
        ok = True
        used: set[str] = set()
        async for item in self._items("fleettargets"):
            ok &= await self._guarded(FleetTarget, item, partial(self._target, freeze=freeze), used)
        async for item in self._items("planrequests"):
            ok &= await self._guarded(PlanRequestObject, item, self._plan_request, used)
        self._plans = {plan_id: plan for plan_id, plan in self._plans.items() if plan_id in used}
        return ok

    async def _guarded(
        self,
        model: type[ResourceT],
        item: Mapping[str, Any],
        work: Callable[[ResourceT], Awaitable[None]],
        used: set[str],
    ) -> bool:
        try:
            wanted = parsed(model, item)
            used.add(wanted.status.plan_id or "")
            async with self.leadership.acting():
                await work(wanted)
        except (ApiError, ActuationError) as error:
            metadata = item.get("metadata", {})
            log.warning(
                "custom_resource_failed",
                object=f"{metadata.get('namespace')}/{metadata.get('name')}",
                reason=str(error),
            )
            return False
        return True

    async def _target(self, wanted: FleetTarget, freeze: Freeze) -> None:
        if wanted.metadata.deletion_timestamp is not None:
            await self._delete(wanted)
            return
        if not self.observe_only:
            await self._set_finalizer(wanted, on=wanted.spec.deletion_policy is DeletionPolicy.DELETE)
        stored: Target | None = None
        report: TargetStatus | None = None
        digest = wanted.status.digest
        try:
            spec = _valid(TargetSpec, wanted.spec.target)
            stored, ready = await self._synced(wanted, spec)
            if ready.is_true:
                digest = None if stored is None else digest_of(stored.spec, with_plan=states_plan(wanted))
        except InvalidSpecError as error:
            ready = Condition(Kind.READY, Status.FALSE, "InvalidSpec", str(error))
        except ProblemError as error:
            ready = _refused(error)
        if stored is not None and ready.is_true:
            report = await _or_none(self.api.get_target_status(stored.name))
        plan_id = stored.spec.plan_id if stored is not None else None
        plan = await self._plan(plan_id)
        await self._write_status(
            wanted,
            [
                ready,
                state.feasible(plan),
                state.applied(report, plan_id),
                state.slo_met(report, plan_id),
                state.power_within_budget(plan),
                state.frozen(freeze),
            ],
            name=wanted.document_name,
            version=None if stored is None else stored.version,
            digest=digest,
            planId=plan_id,
            phase=None if report is None else report.phase.value,
        )

    async def _synced(self, wanted: FleetTarget, spec: TargetSpec) -> tuple[Target | None, Condition]:
        name = wanted.document_name
        found = await _or_none(self.api.get_target(name))
        stored = found.document if found is not None else None
        decision = resolve(wanted, spec, stored)
        if isinstance(decision, NotOurs):  # a target that this object never wrote may be of another project
            return (None if wanted.status.digest is None else stored), decision.condition
        if isinstance(decision, InSync):
            return decision.target, _in_sync(decision.target)
        if self.observe_only:
            return stored, Condition(
                Kind.READY, Status.FALSE, "ObserveOnly", "the controller only observes: nothing is written"
            )
        try:
            written = await self._put(wanted, decision.spec, found)
        except PreconditionFailedError:
            return stored, Condition(Kind.READY, Status.FALSE, "Conflict", "another client wrote the target just now")
        log.info("target_written", object=wanted.key, target=name, version=written.version)
        return written, _in_sync(written)

    async def _put(self, wanted: FleetTarget, spec: TargetSpec, found: Versioned[Target] | None) -> Target:
        name = wanted.document_name
        if found is not None:
            return (await self.api.replace_target(name, spec, if_match=found.etag)).document
        return (await self.api.send(_in_project(create_target(name, spec), wanted.spec.project))).document

    async def _delete(self, wanted: FleetTarget) -> None:
        if FINALIZER not in wanted.metadata.finalizers:
            return
        found = await _or_none(self.api.get_target(wanted.document_name))
        deletes = wanted.spec.deletion_policy is DeletionPolicy.DELETE
        if deletes and found is not None and may_delete(wanted, found.document):
            if self.observe_only:
                return
            await self.api.delete_target(wanted.document_name, if_match=found.etag)
            log.info("target_deleted", object=wanted.key, target=wanted.document_name)
        await self._set_finalizer(wanted, on=False)

    async def _set_finalizer(self, wanted: FleetTarget, *, on: bool) -> None:
        if on == (FINALIZER in wanted.metadata.finalizers):
            return
        others = [each for each in wanted.metadata.finalizers if each != FINALIZER]
        metadata = {
            "resourceVersion": wanted.metadata.resource_version,
            "finalizers": [*others, FINALIZER] if on else others,
        }
        await self.kubernetes.patch(wanted.path, {"metadata": metadata})

    async def _plan_request(self, wanted: PlanRequestObject) -> None:
        plan: PlanRecord | None = None
        plan_id: str | None = None
        phase = None
        try:
            request = _valid(PlanRequest, wanted.spec.request)
            if self.observe_only:
                ready = Condition(
                    Kind.READY, Status.FALSE, "ObserveOnly", "the controller only observes: nothing is requested"
                )
            else:
                job = await self._job(wanted, request)
                plan_id, phase = job.id, job.state.value
                plan = await self._plan(job.id) if job.state is JobState.SUCCEEDED else None
                ready = _planned(job)
        except InvalidSpecError as error:
            ready = Condition(Kind.READY, Status.FALSE, "InvalidSpec", str(error))
        except ProblemError as error:
            ready = _refused(error)
        cost = None if plan is None else plan.plan.cost_usd_per_h
        conditions = [ready, state.feasible(plan), state.planned_slo_met(plan), state.power_within_budget(plan)]
        await self._write_status(
            wanted,
            conditions,
            planId=plan_id,
            phase=phase,
            costPerHour=None if cost is None else f"{cost:.2f}",
        )

    async def _job(self, wanted: PlanRequestObject, request: PlanRequest) -> Job:
        """Return the job of this generation.  The idempotency key makes a repeated POST return the same job."""
        known = wanted.status
        if known.plan_id is not None and known.observed_generation == wanted.metadata.generation:
            return await self.api.get_job(known.plan_id)
        call = submit_plan(
            request,
            idempotency_key=f"{wanted.metadata.uid}-{wanted.metadata.generation}",
            name=wanted.spec.name or wanted.metadata.name,
            labels={"kubernetes-namespace": wanted.metadata.namespace, "kubernetes-name": wanted.metadata.name},
        )
        job = await self.api.send(_in_project(call, wanted.spec.project))
        log.info("plan_requested", object=wanted.key, plan_id=job.id)
        return job

    async def _plan(self, plan_id: str | None) -> PlanRecord | None:
        if plan_id is None:
            return None
        if plan_id not in self._plans:
            found = await _or_none(self.api.get_plan(plan_id))
            if found is None:
                return None
            self._plans[plan_id] = found
        return self._plans[plan_id]

    async def _write_status(
        self, wanted: FleetTarget | PlanRequestObject, conditions: list[Condition], **fields: Any
    ) -> None:
        generation, before = wanted.metadata.generation, wanted.status
        found = state.written(conditions, before.conditions, generation=generation, now=self.clock.now())
        status = fields | {"observedGeneration": generation, "conditions": found}
        known = before.model_dump(by_alias=True)
        if all(known.get(key, value) == value for key, value in status.items() if key != "conditions") and (
            list(before.conditions) == found
        ):
            return
        await self.kubernetes.patch(f"{wanted.path}/status", {"status": status})

    def _items(self, plural: str) -> AsyncIterator[Mapping[str, Any]]:
        within = "" if self.namespace is None else f"/namespaces/{self.namespace}"
        return listed(self.kubernetes, f"{API}{within}/{plural}")


def _valid(model: type[ModelT], document: Mapping[str, Any]) -> ModelT:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(f"{dotted(path)}: {message}" for path, message in validation_problems(error)[:5])
        raise InvalidSpecError(problems) from error


async def _or_none(call: Coroutine[Any, Any, T]) -> T | None:
    try:
        return await call
    except NotFoundError:
        return None


def _in_project(call: Call[T], project: str | None) -> Call[T]:
    return call if project is None else replace(call, headers={**call.headers, PROJECT_HEADER: project})


def _in_sync(target: Target) -> Condition:
    return Condition(
        Kind.READY, Status.TRUE, "Synced", f"version {target.version} of the target in the API is as specified"
    )


def _refused(error: ProblemError) -> Condition:
    """Report a refusal; a failure of the service itself is no property of the object."""
    if isinstance(error, ServerError | ConnectionFailedError):
        raise error
    return Condition(Kind.READY, Status.FALSE, "RefusedByApi", str(error))


def _planned(job: Job) -> Condition:
    if job.state is JobState.SUCCEEDED:
        return Condition(Kind.READY, Status.TRUE, "Planned", f"plan {job.id} is stored")
    if not job.state.is_final:
        return Condition(Kind.READY, Status.FALSE, "Planning", f"plan {job.id} is {job.state.value}")
    why = job.problem.detail if job.problem is not None else job.state.value
    return Condition(Kind.READY, Status.FALSE, "Failed", f"plan {job.id}: {why}")
