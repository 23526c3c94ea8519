"""One call of each operation that the console needs besides those of every client."""

from typing import Any

from api.client import operations as op
from api.client.calls import Call
from tests.api.client.test_operations import PLAN_REQUEST

CONSOLE_EXAMPLES: dict[str, list[Call[Any]]] = {
    "validate_plan": [op.validate_plan(PLAN_REQUEST)],
    "list_target_statuses": [op.list_target_statuses()],
    "open_session": [op.open_session()],
    "get_session": [op.get_session()],
    "end_session": [op.end_session()],
}
