"""Reads and checks request bodies within limits of size, memory and time."""

from api.server.bodies.checker import BodyChecker
from api.server.bodies.reading import BodyBudget, BodyRule, BodyShare, is_json, parse_document, read_body

__all__ = ["BodyBudget", "BodyChecker", "BodyRule", "BodyShare", "is_json", "parse_document", "read_body"]
