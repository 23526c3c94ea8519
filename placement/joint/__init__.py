"""Replica counts and packing chosen together, which pays where GPUs have few slots: `joint_balanced`."""

from placement.joint.together import joint_balanced

__all__ = ["joint_balanced"]
