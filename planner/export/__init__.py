"""Writes a plan as the files that serving stacks read: launch scripts of engines, and Kubernetes manifests.

`export_plan` is pure: the same plan, settings and catalogue give the same bytes.  `WRITERS` lists what each dialect
does not express, and docs/reference/plan-export.md has the same lists.
"""

from planner.export.dialects import WRITERS, Dialect, export_plan
from planner.export.manifests import ExportedFile
from planner.export.provenance import PlanSource
from planner.export.settings import ExportSettings

__all__ = ["WRITERS", "Dialect", "ExportSettings", "ExportedFile", "PlanSource", "export_plan"]
