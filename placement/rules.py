"""The names of the rules by which engines choose among copies; `placement.dispatch` computes what they lead to."""

from enum import StrEnum


class Dispatch(StrEnum):
    """Who chooses among the copies of an expert."""

    EQUAL = "equal"
    NEAREST = "nearest"
    HASH = "hash"
