"""An autoscaling policy of Ray Serve that follows the counts which Fleetwright publishes for a target.

    autoscaling_config:                      # of a deployment in the Serve config
      min_replicas: 1
      max_replicas: 64
      upscale_delay_s: 0                     # the plan has its own hysteresis
      downscale_delay_s: 0
      policy:
        policy_function: fleetwright.serve_policy:FollowPublishedCount
        policy_kwargs: {url: "https://fleetwright.example", target: chat, token_file: /etc/fleetwright/token}

The target is in mode `recommend`; its part for the deployment has the deployment's name.  A thread reads the counts, so
no tick of Serve's controller waits for the network.  While nothing can be read the last count stays; before the first
count it is the number that Serve runs.  Serve then applies its own bounds and delays.

Ray ships this module by value to the Serve controller, so it imports the standard library only.
"""

import json
import logging
import ssl
import threading
import urllib.error
import urllib.request
import weakref
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

MAX_BODY_BYTES = 1024 * 1024


class FollowPublishedCount:
    """Returns the published count of the deployment for which Serve calls it."""

    def __init__(
        self,
        *,
        url: str,
        target: str,
        token_file: str | None = None,
        ca_file: str | None = None,
        interval_s: float = 5.0,
        timeout_s: float = 2.0,
    ) -> None:
        """Read `target` at the API `url` every `interval_s`; files are those of the node of Serve's controller."""
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ValueError(f"url: must be an http or https URL, got {url!r}")
        for name, value in (("interval_s", interval_s), ("timeout_s", timeout_s)):
            if not 0.1 <= value <= 3600.0:
                raise ValueError(f"{name}: allowed: 0.1 to 3600, got {value!r}")
        self._source = _Source(
            url=f"{url.rstrip('/')}/v1/targets/{quote(target, safe='')}/wanted",
            token_file=Path(token_file) if token_file is not None else None,
            ca_file=ca_file,
            timeout_s=timeout_s,
        )
        self._interval_s = interval_s
        self._started = False

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        """Return the target number of replicas and no state, as Serve's contract for policies wants."""
        self._start()
        wanted = self._source.counts.get(ctx.deployment_name)
        return (ctx.target_num_replicas if wanted is None else wanted), {}

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        stop = threading.Event()
        arguments = (self._source, self._interval_s, stop)
        threading.Thread(target=_poll, args=arguments, name="fleetwright-counts", daemon=True).start()
        weakref.finalize(self, stop.set)  # Serve makes a new policy for each new config


class _Source:
    """Keeps the last counts that it could read, by deployment."""

    def __init__(self, *, url: str, token_file: Path | None, ca_file: str | None, timeout_s: float) -> None:
        self.url = url
        self.token_file = token_file
        self.ca_file = ca_file
        self.timeout_s = timeout_s
        self.counts: dict[str, int] = {}
        self.problem: str | None = None

    def refresh(self) -> None:
        """Read the counts; keep the last ones, and the reason, where that fails.  Parts that are gone keep theirs."""
        try:
            self.counts = self.counts | _counts_of(self._get())
            problem = None
        except (OSError, ValueError, HTTPException) as error:  # urllib's errors are OSErrors
            problem = f"{type(error).__name__}: {error}"
        if problem != self.problem:
            log = logging.getLogger("ray.serve")
            if problem is None:
                log.info("fleetwright: %s responds again", self.url)
            else:
                log.warning("fleetwright: %s: %s; the last counts stay", self.url, problem)
        self.problem = problem

    def _get(self) -> bytes:
        headers = {"Accept": "application/json"}
        if self.token_file is not None:  # read each time: a mounted secret changes
            headers["Authorization"] = f"Bearer {self.token_file.read_text(encoding='utf-8').strip()}"
        context = ssl.create_default_context(cafile=self.ca_file) if self.url.startswith("https") else None
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _RefusedRedirects()
        )
        request = urllib.request.Request(self.url, headers=headers)  # noqa: S310 - http or https
        with opener.open(request, timeout=self.timeout_s) as response:
            body: bytes = response.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            raise ValueError(f"the answer has more than {MAX_BODY_BYTES} bytes")
        return body


class _RefusedRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: the token must not go to another host."""

    def redirect_request(self, *_arguments: Any, **_options: Any) -> None:
        return None


def _counts_of(body: bytes) -> dict[str, int]:
    """Return the counts by deployment.  Raise ValueError for anything else, so that no count is guessed."""
    found = json.loads(body)
    parts = found.get("parts") if isinstance(found, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError("the answer has no list of parts")
    counts = {part.get("unit"): part.get("replicas") for part in parts}
    for unit, replicas in counts.items():
        if not isinstance(unit, str) or type(replicas) is not int or replicas < 0:
            raise ValueError(f"the answer has no valid count of {unit!r}")
    return counts


def _poll(source: _Source, interval_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        source.refresh()
        stop.wait(interval_s)
