"""Faults to action: isolated nodes are drained, their training workers moved, and the nodes probed.  docs/healing.md"""
