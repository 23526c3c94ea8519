"""Start, stop, upgrade and list controllers on Ray.

    start     creates generation 1 and waits until its loop runs; removes it where it does not start
    upgrade   creates the next generation beside the old one, which leads until the new one runs and follows.  Then the
              old one releases the lease, the new one takes it, and the old one ends.  Where anything fails before that,
              the new one is removed and the old one continues
    stop      ends every generation of a name and its node actors, and releases the lease

Each command may be interrupted anywhere and repeated: it reads the state from the cluster, and the lease ensures that
one controller leads at any time.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import structlog
from pydantic import BaseModel, ValidationError

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.leader_election import LeaseRole
from deploy.ray_actor.cluster import ActorExistsError, ActorNotFoundError, RayCluster
from deploy.ray_actor.controller_actor import ControllerActor
from deploy.ray_actor.messages import (
    ControllerActorSettings,
    ControllerName,
    ControllerReport,
    LoopState,
    NodeActorSettings,
    controllers_among,
    node_actors_among,
)

log = structlog.get_logger()

STOP_S: Final = 45.0  # for a loop to end
POLL_S: Final = 0.2
THREADS: Final = 4  # of the controller actor: a status must not wait for a stop


class ControllerExistsError(ActuationError):
    """A controller of that name exists, with another version or other settings."""


class ControllerNotFoundError(ActuationError):
    """There is no controller of that name."""


class StartFailedError(ActuationError):
    """The new controller did not start, and was removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    up_s: float = 60.0  # for a controller to start, and then to lead
    reply_s: float = 10.0
    steady_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class ListedController:
    name: ControllerName
    node_name: str | None
    report: ControllerReport | None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    name: ControllerName
    report: ControllerReport
    changed: bool  # false: the controller was there before


class Lifecycle:
    def __init__(self, cluster: RayCluster, *, timeouts: Timeouts | None = None) -> None:
        self._cluster = cluster
        self._timeouts = timeouts or Timeouts()

    def start(
        self, name: str, settings: ControllerActorSettings, *, runtime_env: Mapping[str, Any] | None = None
    ) -> Outcome:
        """Create a controller, unless the same one runs.  Raise ControllerExistsError, StartFailedError."""
        if there := self._hosts(name):
            return self._same(there[-1], settings)
        host = ControllerName(name, 1)
        try:
            self._create(host, settings, runtime_env)
        except ActorExistsError:  # by a concurrent start
            return self._same(host, settings)
        return Outcome(host, self._up(host), changed=True)

    def stop(self, name: str) -> list[ControllerName]:
        there = self._hosts(name)
        for host in there:
            self._end(host)
        self._end_node_actors(name)
        self._wait_gone(there)
        return there

    def upgrade(
        self, name: str, changes: Mapping[str, Any], *, runtime_env: Mapping[str, Any] | None = None
    ) -> Outcome:
        """Replace a controller by the next generation, with `changes` to its settings.

        Raises ControllerNotFoundError, StartFailedError.
        """
        there = self._hosts(name)
        if not there:
            raise ControllerNotFoundError(f"no controller {name}; start it first")
        old = there[-1]
        before = self._report(old)
        settings = settings_of(before.settings, changes)
        new = ControllerName(name, old.generation + 1)
        self._create(new, settings, runtime_env)
        self._up(new)
        self._hand_over(old, new, was_leader=before.role == LeaseRole.LEADER)
        for host in there:
            self._kill(host)
        self._end_node_actors(name, but_of=new)
        return Outcome(new, self._report(new), changed=True)

    def listing(self) -> list[ListedController]:
        node_names = {node.node_id: node.name for node in self._cluster.nodes()}
        return [self._listed(host, node_names) for host in controllers_among(self._cluster.names())]

    def _listed(self, host: ControllerName, node_names: Mapping[str, str]) -> ListedController:
        try:
            report = self._report(host)
        except ActuationError as error:
            return ListedController(host, None, None, str(error))
        return ListedController(host, node_names.get(report.node_id, report.node_id), report, report.error)

    def _same(self, host: ControllerName, settings: ControllerActorSettings) -> Outcome:
        report = self._report(host)
        here = version("fleetwright")
        if report.version != here:
            raise ControllerExistsError(
                f"controller {host} runs version {report.version}, this is {here}: `controller upgrade` installs it"
            )
        if report.state is LoopState.STOPPED:
            raise ControllerExistsError(
                f"controller {host} is stopped: remove it with `controller stop`, then start it"
            )
        if differing := _differing(report.settings, settings.model_dump(mode="json")):
            raise ControllerExistsError(
                f"controller {host} already runs, with other settings ({', '.join(differing)}): "
                "`controller upgrade` changes them"
            )
        return Outcome(host, report, changed=False)

    def _create(
        self, host: ControllerName, settings: ControllerActorSettings, runtime_env: Mapping[str, Any] | None
    ) -> None:
        nodes = self._cluster.nodes()
        head = next((node.node_id for node in nodes if node.is_head and not node.draining), None)
        payload = settings.model_dump(mode="json")
        options: dict[str, Any] = {
            "max_restarts": -1,
            "max_task_retries": -1,
            "max_concurrency": THREADS,
        }
        if runtime_env is not None:
            options["runtime_env"] = dict(runtime_env)
        self._cluster.create(
            ControllerActor,
            str(host),
            host.name,
            host.generation,
            payload,
            node_id=head,
            pinned=False,
            options=options,
        )

    def _up(self, host: ControllerName) -> ControllerReport:
        """Wait until the controller runs and has a role; else remove it."""
        try:
            return self._wait_for_role(host)
        except (StartFailedError, ActorNotFoundError) as error:
            self._end(host)
            raise StartFailedError(str(error)) from error

    def _wait_for_role(self, host: ControllerName) -> ControllerReport:
        reason = "it does not respond"
        for timeout_s in self._polls(self._timeouts.up_s):
            try:
                report = self._report(host, timeout_s=timeout_s)
            except UnreachableError as error:
                reason = str(error)
                continue
            if report.state is LoopState.FAILED:
                raise StartFailedError(f"controller {host} does not start: {report.error}")
            if report.state is LoopState.RUNNING and report.role != LeaseRole.UNKNOWN:
                return report
            reason = f"it is {report.state}, its role is {report.role}"
        raise StartFailedError(f"controller {host} is not up after {self._timeouts.up_s:g} s: {reason}")

    def _hand_over(self, old: ControllerName, new: ControllerName, *, was_leader: bool) -> None:
        """Stop the old controller; where the new one does not lead then, the old one resumes."""
        try:
            self._cluster.call(str(old), "stop", timeout_s=STOP_S)
        except ActuationError as error:
            log.warning("old_controller_not_stopped", controller=str(old), reason=str(error))
            self._kill(old)  # its lease expires
        if not was_leader:
            return  # another controller leads and continues
        role = "nothing"
        for timeout_s in self._polls(self._timeouts.up_s):
            try:
                role = self._report(new, timeout_s=timeout_s).role
            except ActuationError as error:
                role = str(error)
                continue
            if role == LeaseRole.LEADER:
                return
        if role == LeaseRole.FOLLOWER:
            return  # a third controller took the lease
        self._end(new)
        self._try_call(old, "resume")
        raise StartFailedError(
            f"controller {new} does not lead after {self._timeouts.up_s:g} s ({role}); {old} continues"
        )

    def _end(self, host: ControllerName) -> None:
        self._try_call(host, "stop")
        self._kill(host)

    def _kill(self, host: ControllerName) -> None:
        self._cluster.kill(str(host))

    def _end_node_actors(self, name: str, *, but_of: ControllerName | None = None) -> None:
        for node_actor in node_actors_among(self._cluster.names()):
            if node_actor.host.name == name and node_actor.host != but_of:
                self._cluster.kill(str(node_actor))

    def _wait_gone(self, hosts: Iterable[ControllerName]) -> None:
        """Wait for the actors to disappear; node actors that were being created meanwhile are ended too."""
        ended = {host.name for host in hosts}
        for _timeout_s in self._polls(self._timeouts.up_s):
            names = self._cluster.names()
            left = [each for each in controllers_among(names) if each in hosts]
            node_actors = [each for each in node_actors_among(names) if each.host.name in ended]
            if not left and not node_actors:
                return
            for node_actor in node_actors:
                self._cluster.kill(str(node_actor))
        raise UnreachableError(f"ended, and still there after {self._timeouts.up_s:g} s: {', '.join(sorted(ended))}")

    def _try_call(self, host: ControllerName, method: str) -> None:
        try:
            self._cluster.call(str(host), method, timeout_s=STOP_S)
        except ActuationError as error:
            log.warning("controller_not_reached", controller=str(host), method=method, reason=str(error))

    def _report(self, host: ControllerName, *, timeout_s: float | None = None) -> ControllerReport:
        document = self._cluster.call(str(host), "status", timeout_s=timeout_s or self._timeouts.reply_s)
        try:
            return ControllerReport.model_validate(document)
        except ValidationError as error:
            raise UnreachableError(
                f"controller {host} returned an invalid report: {error.errors()[0]['msg']}"
            ) from error

    def _hosts(self, name: str) -> list[ControllerName]:
        return [host for host in controllers_among(self._cluster.names()) if host.name == name]

    def _polls(self, max_s: float) -> Iterable[float]:
        """Poll for this long; yields the time that one poll may take."""
        until_s = self._timeouts.steady_s() + max_s
        while (left_s := until_s - self._timeouts.steady_s()) > 0.0:
            yield min(self._timeouts.reply_s, max(POLL_S, left_s))
            self._timeouts.sleep(POLL_S)


def settings_of(before: Mapping[str, Any], changes: Mapping[str, Any]) -> ControllerActorSettings:
    """Return the settings of another version that this version has too, with `changes`."""
    known = _known(before, ControllerActorSettings)
    if isinstance(known.get("watch"), Mapping):
        known["watch"] = _known(known["watch"], NodeActorSettings)
    return ControllerActorSettings.model_validate(merged(known, changes))


def merged(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the changes into the settings before; those of node actors change field by field."""
    after = {**before, **changes}
    if isinstance(changes.get("watch"), Mapping):
        after["watch"] = {**(before.get("watch") or {}), **changes["watch"]}
    return after


def _known(values: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    return {field: value for field, value in values.items() if field in model.model_fields}


def _differing(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return sorted(field for field in there.keys() | wanted.keys() if there.get(field) != wanted.get(field))
