"""One call of each operation that the console needs besides those of every client."""

from typing import Any

from api.client import access_operations as access
from api.client import operations as op
from api.client.calls import Call
from api.schemas.tokens import TokenRequest
from api.server.examples import bodies
from tests.api.client.test_operations import PLAN_REQUEST

TOKEN_REQUEST = TokenRequest.model_validate(bodies()["create_token"])
CONSOLE_EXAMPLES: dict[str, list[Call[Any]]] = {
    "validate_plan": [op.validate_plan(PLAN_REQUEST)],
    "list_target_statuses": [op.list_target_statuses()],
    "create_token": [access.create_token(TOKEN_REQUEST)],
    "list_tokens": [access.list_tokens()],
    "revoke_token": [access.revoke_token("t")],
    "open_session": [access.open_session()],
    "get_session": [access.get_session()],
    "end_session": [access.end_session()],
}
