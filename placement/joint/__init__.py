"""Replica counts and packing chosen together, which pays where GPUs have few slots.

`joint_balanced` for the slots there are, `uneven_layout` for how to deal them out to the GPUs.
"""

from placement.joint.joint_search import joint_balanced
from placement.joint.uneven import uneven_layout

__all__ = ["joint_balanced", "uneven_layout"]
