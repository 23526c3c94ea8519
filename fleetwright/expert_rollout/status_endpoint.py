"""The expert map status of an application's replicas, at the application's ingress.

    GET /fleetwright/expert-maps?deployment=on-h100      {"replicas": [{...}, ...]}

Serve does not address single replicas for a caller; a handle inside the application reaches all that take requests.
The response reveals loaded placements, so the outer gateway should not forward this path.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from fleetwright.asgi import Send, answer_json

PATH = "/fleetwright/expert-maps"
STATUS_METHOD = "expert_map_status"
PATIENCE_S = 5.0


class StatusEndpoint:
    """Responds for the deployments of its handles."""

    def __init__(self, handles: Mapping[str, Any], *, patience_s: float = PATIENCE_S) -> None:
        self._handles = handles
        self._patience_s = patience_s

    async def __call__(self, scope: Mapping[str, Any], send: Send) -> None:
        """Handle one ASGI request for PATH."""
        names = parse_qs(scope["query_string"].decode("latin-1")).get("deployment", [])
        handle = self._handles.get(names[0]) if len(names) == 1 else None
        if scope["method"] != "GET":
            await answer_json(send, 405, {"error": "allowed: GET"})
        elif handle is None:
            await answer_json(send, 404, {"error": f"deployment must be one of: {', '.join(sorted(self._handles))}"})
        else:
            await self._tell(handle, send)

    async def _tell(self, handle: Any, send: Send) -> None:
        try:
            replicas = await replica_statuses(handle, patience_s=self._patience_s)
        except TimeoutError:
            await answer_json(send, 504, {"error": f"some replicas did not answer within {self._patience_s:g} s"})
        except (RayError, RayServeException) as error:
            await answer_json(send, 503, {"error": f"the replicas are unreachable: {type(error).__name__}"})
        else:
            await answer_json(send, 200, {"replicas": replicas})


async def replica_statuses(handle: Any, *, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """Return the status of each replica behind a handle; failing replicas are left out."""
    answers = await handle.broadcast(STATUS_METHOD).results_async(timeout_s=patience_s, return_exceptions=True)
    return [answer for answer in answers if isinstance(answer, dict)]
