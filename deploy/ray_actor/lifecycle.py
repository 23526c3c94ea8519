"""Start, stop, upgrade, list: what is done to controllers on Ray from outside.

    start     creates generation 1 and waits until its loop runs; one that does not come up is taken away again
    upgrade   creates the next generation beside the old one, which leads on until the new one runs and follows; then
              the old one gives the lease back, the new one takes it, and the old one ends.  Whatever goes wrong before
              that takes the new one away and lets the old one go on
    stop      ends every generation of a name, each well, and their watchers

Each may be broken off anywhere and run again: what is there is read from the cluster, and the lease sees to it that one
leads at any time.
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
from deploy.ray_actor.cluster import Cluster, NoActorError, TakenError
from deploy.ray_actor.messages import HostReport, HostSettings, HostState, WatchSettings
from deploy.ray_actor.names import HostName, hosts_among, watchers_among

log = structlog.get_logger()

STOP_S: Final = 45.0  # for a loop to end well
LOOK_S: Final = 0.2


class ExistsError(ActuationError):
    """A controller of that name is there, and is not what was asked for."""


class NotThereError(ActuationError):
    """No controller of that name."""


class NotUpError(ActuationError):
    """The new controller did not come up, and was taken away again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait, and how time goes by."""

    up_s: float = 60.0  # for a controller to come up, and then to lead
    answer_s: float = 10.0
    steady_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Listed:
    """One controller: what it is called, what it says, or why it says nothing."""

    name: HostName
    node_name: str | None
    report: HostReport | None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a start or an upgrade."""

    name: HostName
    report: HostReport
    changed: bool  # false: it was so before


class Conductor:
    """The commands, on one cluster."""

    def __init__(self, cluster: Cluster, *, patience: Patience | None = None) -> None:
        self._cluster = cluster
        self._patience = patience or Patience()

    def start(self, name: str, settings: HostSettings, *, runtime_env: Mapping[str, Any] | None = None) -> Outcome:
        """A controller of that name; one that is there and is the same will do.  Raises ExistsError, NotUpError."""
        if there := self._hosts(name):
            return self._same(there[-1], settings)
        host = HostName(name, 1)
        try:
            self._create(host, settings, runtime_env)
        except TakenError:  # by another start at the same time
            return self._same(host, settings)
        return Outcome(host, self._up(host), changed=True)

    def stop(self, name: str) -> list[HostName]:
        """End all of that name; which there were.  None is as good."""
        there = self._hosts(name)
        for host in there:
            self._end(host)
        self._end_watchers(name)
        self._wait_gone(there)
        return there

    def upgrade(
        self, name: str, changes: Mapping[str, Any], *, runtime_env: Mapping[str, Any] | None = None
    ) -> Outcome:
        """The next generation, with the old one's settings but for `changes`.  Raises NotThereError, NotUpError."""
        there = self._hosts(name)
        if not there:
            raise NotThereError(f"no controller {name}; start it first")
        old = there[-1]
        before = self._report(old)
        settings = settings_of(before.settings, changes)
        new = HostName(name, old.generation + 1)
        self._create(new, settings, runtime_env)
        self._up(new)
        self._hand_over(old, new, led=before.standing == LeaseRole.LEADER)
        for host in there:
            self._kill(host)
        self._end_watchers(name, but_of=new)
        return Outcome(new, self._report(new), changed=True)

    def listing(self) -> list[Listed]:
        """All controllers of the namespace."""
        node_names = {node.node_id: node.name for node in self._cluster.nodes()}
        return [self._listed(host, node_names) for host in hosts_among(self._cluster.names())]

    def _listed(self, host: HostName, node_names: Mapping[str, str]) -> Listed:
        try:
            report = self._report(host)
        except ActuationError as error:
            return Listed(host, None, None, str(error))
        return Listed(host, node_names.get(report.node_id, report.node_id), report, report.error)

    def _same(self, host: HostName, settings: HostSettings) -> Outcome:
        """What is there, if it is what was asked for."""
        report = self._report(host)
        here = version("fleetwright")
        if report.version != here:
            raise ExistsError(
                f"controller {host} runs version {report.version}, this is {here}: `controller upgrade` brings it here"
            )
        if report.state is HostState.STOPPED:
            raise ExistsError(f"controller {host} is stopped: `controller stop` takes it away, then it can be started")
        if differing := _differing(report.settings, settings.model_dump(mode="json")):
            raise ExistsError(
                f"controller {host} already runs, with other settings ({', '.join(differing)}): "
                "`controller upgrade` changes them"
            )
        return Outcome(host, report, changed=False)

    def _create(self, host: HostName, settings: HostSettings, runtime_env: Mapping[str, Any] | None) -> None:
        nodes = self._cluster.nodes()
        head = next((node.node_id for node in nodes if node.is_head and not node.draining), None)
        told = settings.model_dump(mode="json")
        self._cluster.start_host(str(host), host.name, host.generation, told, node_id=head, runtime_env=runtime_env)

    def _up(self, host: HostName) -> HostReport:
        """Wait until it runs and knows who leads; else it is taken away again."""
        try:
            return self._waited_for(host)
        except (NotUpError, NoActorError) as error:
            self._end(host)
            raise NotUpError(str(error)) from error

    def _waited_for(self, host: HostName) -> HostReport:
        reason = "it does not answer"
        for timeout_s in self._looks(self._patience.up_s):
            try:
                report = self._report(host, timeout_s=timeout_s)
            except UnreachableError as error:
                reason = str(error)
                continue
            if report.state is HostState.FAILED:
                raise NotUpError(f"controller {host} does not come up: {report.error}")
            if report.state is HostState.RUNNING and report.standing != LeaseRole.UNKNOWN:
                return report
            reason = f"it is {report.state}, and whether it leads is {report.standing}"
        raise NotUpError(f"controller {host} is not up after {self._patience.up_s:g} s: {reason}")

    def _hand_over(self, old: HostName, new: HostName, *, led: bool) -> None:
        """The old one stops; when the new one does not lead in its stead, the old one goes on."""
        try:
            self._cluster.call(str(old), "stop", timeout_s=STOP_S)
        except ActuationError as error:
            log.warning("old_controller_does_not_stop", controller=str(old), reason=str(error))
            self._kill(old)  # its lease ends by itself
        if not led:
            return  # another one leads, and goes on
        seen = "nothing"
        for timeout_s in self._looks(self._patience.up_s):
            try:
                seen = self._report(new, timeout_s=timeout_s).standing
            except ActuationError as error:
                seen = str(error)
                continue
            if seen == LeaseRole.LEADER:
                return
        if seen == LeaseRole.FOLLOWER:
            return  # a third one was quicker
        self._end(new)
        self._call_quietly(old, "resume")
        raise NotUpError(f"controller {new} does not lead after {self._patience.up_s:g} s ({seen}); {old} goes on")

    def _end(self, host: HostName) -> None:
        """Well, if it answers."""
        self._call_quietly(host, "stop")
        self._kill(host)

    def _kill(self, host: HostName) -> None:
        self._cluster.kill(str(host))

    def _end_watchers(self, name: str, *, but_of: HostName | None = None) -> None:
        for watcher in watchers_among(self._cluster.names()):
            if watcher.host.name == name and watcher.host != but_of:
                self._cluster.kill(str(watcher))

    def _wait_gone(self, hosts: Iterable[HostName]) -> None:
        """One that is being created while others are ended is seen here, and its watchers too."""
        ended = {host.name for host in hosts}
        for _timeout_s in self._looks(self._patience.up_s):
            names = self._cluster.names()
            left = [each for each in hosts_among(names) if each in hosts]
            watchers = [each for each in watchers_among(names) if each.host.name in ended]
            if not left and not watchers:
                return
            for watcher in watchers:
                self._cluster.kill(str(watcher))
        raise UnreachableError(
            f"told to end, and still there after {self._patience.up_s:g} s: {', '.join(sorted(ended))}"
        )

    def _call_quietly(self, host: HostName, method: str) -> None:
        try:
            self._cluster.call(str(host), method, timeout_s=STOP_S)
        except ActuationError as error:
            log.warning("controller_does_not_answer", controller=str(host), asked=method, reason=str(error))

    def _report(self, host: HostName, *, timeout_s: float | None = None) -> HostReport:
        said = self._cluster.call(str(host), "status", timeout_s=timeout_s or self._patience.answer_s)
        try:
            return HostReport.model_validate(said)
        except ValidationError as error:
            raise UnreachableError(
                f"controller {host} says what is not understood: {error.errors()[0]['msg']}"
            ) from error

    def _hosts(self, name: str) -> list[HostName]:
        return [host for host in hosts_among(self._cluster.names()) if host.name == name]

    def _looks(self, most_s: float) -> Iterable[float]:
        """Again and again for so long; each says how long one look may take."""
        until_s = self._patience.steady_s() + most_s
        while (left_s := until_s - self._patience.steady_s()) > 0.0:
            yield min(self._patience.answer_s, max(LOOK_S, left_s))
            self._patience.sleep(LOOK_S)


def settings_of(before: Mapping[str, Any], changes: Mapping[str, Any]) -> HostSettings:
    """What another version was told, as far as this one knows it, and what is told now."""
    known = _known(before, HostSettings)
    if isinstance(known.get("watch"), Mapping):
        known["watch"] = _known(known["watch"], WatchSettings)
    return HostSettings.model_validate(merged(known, changes))


def merged(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes over what was; what is said of watching is changed field by field."""
    after = {**before, **changes}
    if isinstance(changes.get("watch"), Mapping):
        after["watch"] = {**(before.get("watch") or {}), **changes["watch"]}
    return after


def _known(said: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    return {field: value for field, value in said.items() if field in model.model_fields}


def _differing(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return sorted(field for field in there.keys() | wanted.keys() if there.get(field) != wanted.get(field))
