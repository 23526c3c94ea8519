"""Replica counts and packing in one search, for layouts with few slots per GPU; `joint_balanced` is the entry."""

from placement.joint.joint_search import joint_balanced

__all__ = ["joint_balanced"]
