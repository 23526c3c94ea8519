"""Monitors Ray Train v2 runs and reads their status actors.  docs/explanation/runtime/remediation.md"""
