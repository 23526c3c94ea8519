"""Problem details, RFC 9457: the body of every unsuccessful response, as `application/problem+json`."""

from pydantic import BaseModel, ConfigDict, Field

PROBLEM_MEDIA_TYPE = "application/problem+json"
# Problem types are URIs (RFC 9457, section 3.1.1); a URN needs no web site.
PROBLEM_TYPE_PREFIX = "urn:fleetwright:problem:"


class FieldProblem(BaseModel):
    """One defect of the request: its place, and the allowed values."""

    model_config = ConfigDict(frozen=True)

    path: str = Field(description="Place in the body, or `query.NAME`, `path.NAME`, `header.NAME`.")
    message: str = Field(description="What is wrong, naming the allowed range or values.")
    line: int | None = Field(default=None, description="1-based line, when the source was a text file.")


class ProblemDetails(BaseModel):
    """RFC 9457 problem details with two extension members: `errors` and `request_id`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = Field(description="URN of the problem type; `about:blank`: no more than the status.")
    title: str
    status: int = Field(ge=400, le=599)
    detail: str | None = None
    instance: str | None = Field(default=None, description="The requested path.")
    errors: tuple[FieldProblem, ...] = ()
    request_id: str | None = None
