"""Describes the operations on projects, sessions and tokens as `Call`s."""

from dataclasses import replace
from http import HTTPStatus

from api.client.calls import (
    MISSING,
    Call,
    Versioned,
    as_type,
    as_versioned,
    creating,
    deleting,
    if_matching,
    listing,
    path_of,
    posting,
    putting,
    reading,
)
from api.schemas.pages import Page
from api.schemas.projects import Project, ProjectSpec
from api.schemas.sessions import SessionInfo
from api.schemas.tokens import TokenCreated, TokenInfo, TokenRequest


def list_projects(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Project]]:
    """Read projects with their quotas, by name."""
    return listing("/v1/projects", Project, limit=limit, cursor=cursor)


def get_project(name: str) -> Call[Versioned[Project]]:
    """Read one project."""
    return reading(_project_path(name), as_versioned(Project))


def create_project(name: str, spec: ProjectSpec) -> Call[Versioned[Project]]:
    """Create a project; PreconditionFailedError when there is one of this name."""
    return putting(_project_path(name), spec, MISSING, as_versioned(Project), success=HTTPStatus.CREATED)


def replace_project(name: str, spec: ProjectSpec, *, if_match: str) -> Call[Versioned[Project]]:
    """Replace the quotas of a project."""
    return putting(_project_path(name), spec, if_matching(if_match), as_versioned(Project))


def delete_project(name: str, *, if_match: str) -> Call[None]:
    """Delete a project without valid tokens and targets."""
    return deleting(_project_path(name), if_matching(if_match))


def open_session() -> Call[SessionInfo]:
    """Exchange the client's token for a cookie, as a browser does."""
    return replace(posting("/v1/session", None, SessionInfo, success=HTTPStatus.CREATED), repeatable=False)


def get_session() -> Call[SessionInfo]:
    """Read who the caller is and which scopes it has."""
    return reading("/v1/session", as_type(SessionInfo))


def end_session() -> Call[None]:
    """End the session of the cookie that the request carries."""
    return deleting("/v1/session", {})


def create_token(request: TokenRequest, *, idempotency_key: str | None = None) -> Call[TokenCreated]:
    """Create a token.  Only this response contains its secret."""
    return creating("/v1/tokens", request, idempotency_key, TokenCreated)


def list_tokens(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[TokenInfo]]:
    """Read tokens without their secrets."""
    return listing("/v1/tokens", TokenInfo, limit=limit, cursor=cursor)


def revoke_token(token_id: str) -> Call[None]:
    """Revoke a token."""
    return deleting(path_of("/v1/tokens/{token_id}", token_id=token_id), {})


def _project_path(name: str) -> str:
    return path_of("/v1/projects/{name}", name=name)
