"""Contains the client of the API: `Client`, and `AsyncClient` for asyncio.  Users import both from `fleetwright`.

    with fleetwright.Client("http://127.0.0.1:8400", token=token) as client:
        offers = client.get_document(OFFERS)
        client.replace_document(OFFERS, cheaper(offers.document), if_match=offers.etag)

A test compares its operations with the service's OpenAPI document.
"""

from api.client.calls import Versioned
from api.client.clients import AsyncClient, Client
from api.client.errors import (
    ApiError,
    ClientSettingsError,
    ConflictError,
    ConnectionFailedError,
    ForbiddenError,
    GoneError,
    InvalidRequestError,
    NotFoundError,
    PreconditionFailedError,
    ProblemError,
    RateLimitedError,
    ServerError,
    UnauthorizedError,
    UnexpectedResponseError,
)
from api.client.operations import GPUS, MODELS, OFFERS, TOPOLOGY, DocumentType
from api.client.retries import Retries
from api.client.tokens import token_from_environment, token_from_file
from api.client.transport import DEFAULT_URL, InProcessTransport, Timeouts

__all__ = [
    "DEFAULT_URL",
    "GPUS",
    "MODELS",
    "OFFERS",
    "TOPOLOGY",
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientSettingsError",
    "ConflictError",
    "ConnectionFailedError",
    "DocumentType",
    "ForbiddenError",
    "GoneError",
    "InProcessTransport",
    "InvalidRequestError",
    "NotFoundError",
    "PreconditionFailedError",
    "ProblemError",
    "RateLimitedError",
    "Retries",
    "ServerError",
    "Timeouts",
    "UnauthorizedError",
    "UnexpectedResponseError",
    "Versioned",
    "token_from_environment",
    "token_from_file",
]
