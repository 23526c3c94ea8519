"""Calls of every operation on projects, for the tests of the client."""

from typing import Any

from api.client import access_operations as access
from api.client.calls import Call
from api.schemas.projects import ProjectSpec
from api.server.examples import bodies

PROJECT = ProjectSpec.model_validate(bodies()["put_project"])
PROJECT_EXAMPLES: dict[str, list[Call[Any]]] = {
    "list_projects": [access.list_projects()],
    "get_project": [access.get_project("p")],
    "create_project": [access.create_project("p", PROJECT)],
    "replace_project": [access.replace_project("p", PROJECT, if_match='"1-a"')],
    "delete_project": [access.delete_project("p", if_match='"1-a"')],
}
