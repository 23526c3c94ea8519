"""Applies a plan's clock to a worker's own GPUs, through the agent of its node.

    class Model:                                    # a Serve deployment; a training worker calls `follow` likewise
        def __init__(self):
            self.clock = ReplicaClock()             # off unless FLEETWRIGHT_AGENT names the node's agent

        def reconfigure(self, user_config):
            self.clock.follow(user_config)          # returns at once

A request holds a lease that a separate thread renews.  It ends with the worker: by `close`, at exit, or by the end of
the lease after a `kill -9`.  An error of the agent is logged once and retried; it never fails the worker.
docs/explanation/runtime/node-agent.md
"""

import atexit
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fleetwright.engines.agent_client import Agent, AgentAccess, AgentError, RefusedError
from fleetwright.engines.visible_gpus import Gpu, UnknownGpusError, nvml_uuids, own_gpus

KEY = "clock"  # in Serve's user_config
FULL = 1.0
LEASE_S = 30.0
SETTLE_S = 1.0  # from a request to the first readback
NEAR = 1e-3  # drivers round
_LOG = logging.getLogger("fleetwright.clock")
_GPUS, _CAPS = "/v1/gpus", "/v1/caps"


class ReplicaClock:
    """One worker's requested and enforced clock."""

    def __init__(
        self,
        *,
        agent: Agent | None = None,
        holder: str | None = None,
        environment: Mapping[str, str] = os.environ,
        lease_s: float = LEASE_S,
        local: Callable[[], Sequence[str] | None] = nvml_uuids,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `agent`, the environment names it; without a name there, the clock is off."""
        self.holder = holder or _holder()
        self._environment, self._lease_s, self._local, self._steady_s = environment, lease_s, local, steady_s
        self._agent = agent or _agent(environment)
        self._wanted, self._held = FULL, False
        self._uuids: tuple[str, ...] = ()
        self._enforced: tuple[float, float] | None = None  # share, and when it was read back
        self._failures, self._unshown, self._last_warning = 0, 0, ""
        self._lock, self._stepping = threading.Lock(), threading.Lock()
        self._woken, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, user_config: Any) -> None:
        """Request the clock of a plan from Serve's user_config; without one, the full clock."""
        text = user_config.get(KEY, FULL) if isinstance(user_config, Mapping) else FULL
        if isinstance(text, bool) or not isinstance(text, int | float) or not 0 < text <= FULL:
            self._warn_once(f"{KEY} must be above 0 and at most 1, got {text!r}; the full clock is taken")
            text = FULL
        self.set(float(text))

    def set(self, share: float) -> None:
        """Request this share of the full clock; 1 releases it."""
        with self._lock:
            self._wanted, self._failures, self._unshown = share, 0, 0
        if self._agent is None or self._ending.is_set():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fleetwright-clock", daemon=True)
            self._thread.start()
            atexit.register(self.close)
        self._woken.set()

    @property
    def clock_wanted(self) -> float:
        return self._wanted

    @property
    def clock_enforced(self) -> float | None:
        """Return the enforced share by the agent's readback, of several GPUs the highest; None if unknown or old."""
        readback = self._enforced
        return readback[0] if readback and self._steady_s() - readback[1] <= self._lease_s else None

    def close(self, *, wait_s: float = 2.0) -> None:
        """Release the clock at the end of the worker.  Without a reply in time the lease ends it."""
        self._ending.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(wait_s)
            atexit.unregister(self.close)

    def step(self) -> float:
        """Send the request and read the enforced clock back; return the seconds until the next step."""
        agent = self._agent
        if agent is None:
            return self._lease_s
        with self._stepping:
            wanted = FULL if self._ending.is_set() else self._wanted
            try:
                report = self._ordered(agent, wanted)
            except RefusedError as error:
                self._uuids = ()  # the agent may list other GPUs now
                return self._failed(str(error))
            except (AgentError, UnknownGpusError) as error:
                return self._failed(str(error))
            return self._received(report, wanted)

    def _ordered(self, agent: Agent, wanted: float) -> dict[str, Any]:
        if wanted >= FULL and self._held:
            self._release(agent)
        if wanted >= FULL or not self._uuids:
            report = agent.request("GET", _GPUS)
            self._uuids = self._find_own_gpus(report)
            if wanted >= FULL or not self._uuids:
                return report
        self._held = True  # even if the reply is lost
        body = {"holder": self.holder, "lease_s": self._lease_s, "on_expiry": "release"}
        return agent.request("PUT", _CAPS, body | {"clock_share": wanted, "gpus": list(self._uuids)})

    def _release(self, agent: Agent) -> None:
        try:
            agent.request("DELETE", f"{_CAPS}/{quote(self.holder, safe='')}")
        except RefusedError as error:
            if error.status != 404:  # it had ended already
                raise
        self._held = False

    def _find_own_gpus(self, report: Mapping[str, Any]) -> tuple[str, ...]:
        listed = [Gpu(str(gpu["uuid"]), str(gpu["name"])) for gpu in report.get("gpus", ())]
        return own_gpus(listed, environment=self._environment, local=self._local)

    def _received(self, report: Mapping[str, Any], wanted: float) -> float:
        if self._last_warning and self._failures:
            _LOG.info("the agent replies again")
        self._failures, self._last_warning = 0, ""
        mine = [gpu.get("enforced_share") for gpu in report.get("gpus", ()) if gpu["uuid"] in self._uuids]
        shares = [float(share) for share in mine if share is not None]
        complete = bool(shares) and len(shares) == len(mine)
        self._enforced = (max(shares), self._steady_s()) if complete else None
        shown = not mine or (complete and max(shares) <= wanted + NEAR)
        self._unshown = 0 if shown else self._unshown + 1
        return self._lease_s / 3 if shown else self._retry_delay_s(self._unshown)

    def _failed(self, reason: str) -> float:
        self._warn_once(f"the plan's clock does not reach the GPUs: {reason}")
        self._failures += 1
        return self._retry_delay_s(self._failures)

    def _retry_delay_s(self, times: int) -> float:
        """Return the wait before the next try: short at first, then longer, within the lease."""
        return min(self._lease_s / 3, SETTLE_S * 2.0 ** min(times - 1, 10))

    def _warn_once(self, reason: str) -> None:
        if reason != self._last_warning:
            self._last_warning = reason
            _LOG.warning("%s", reason)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._woken.clear()
            try:
                wait_s = self.step()
            except Exception:  # noqa: BLE001 - an unexpected response must not end the worker's clock
                _LOG.exception("the plan's clock does not reach the GPUs")
                wait_s = self._lease_s / 3
            if not self._ending.is_set():
                self._woken.wait(wait_s)
        if self._held:
            self.step()


def _agent(environment: Mapping[str, str]) -> Agent | None:
    try:
        return AgentAccess.from_environment(environment)
    except AgentError as error:
        _LOG.warning("plans' clocks are not applied: %s", error)
        return None


def _holder() -> str:
    ray = sys.modules.get("ray")
    try:
        if ray is not None and ray.is_initialized() and (actor := ray.get_runtime_context().get_actor_id()):
            return f"worker-{actor}"
    except Exception:  # noqa: BLE001 - whatever Ray is like here, a name can be had
        _LOG.debug("no actor id", exc_info=True)
    return f"worker-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"[:200]
