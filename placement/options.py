"""The choices of a placement request.  Light to import; `placement.dispatch` computes the loads under each rule."""

from enum import StrEnum
from typing import Literal

DrawingEngine = Literal["sglang"]  # draws the choice of a far GPU once, so its loads are known exactly


class Dispatch(StrEnum):
    """How an engine chooses among the copies of an expert."""

    EQUAL = "equal"
    NEAREST = "nearest"
    HASH = "hash"


class Method(StrEnum):
    """How a placement is computed."""

    SEARCH = "search"  # local search
    EXACT = "exact"  # then an integer program per layer
    AUTO = "auto"  # the program for layers where the search leaves a gap
