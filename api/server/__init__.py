"""Contains the HTTP service: an application factory, its settings, and the parts that `serve` runs."""

from api.server.app import create_app
from api.server.auth import Principal, StaticToken
from api.server.settings import Settings

__all__ = ["Principal", "Settings", "StaticToken", "create_app"]
