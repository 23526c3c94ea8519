"""Calls of every operation on projects, for the tests of the client."""

from typing import Any

from api.client import operations as op
from api.client.calls import Call
from api.schemas.projects import ProjectSpec

PROJECT_EXAMPLES: dict[str, list[Call[Any]]] = {
    "list_projects": [op.list_projects()],
    "get_project": [op.get_project("p")],
    "create_project": [op.create_project("p", ProjectSpec())],
    "replace_project": [op.replace_project("p", ProjectSpec(), if_match='"1-a"')],
    "delete_project": [op.delete_project("p", if_match='"1-a"')],
}
