"""All numbers of a watcher in one document."""

from typing import Annotated

from pydantic import Field

from faults.crashes import CrashSettings
from faults.hangs import HangSettings
from faults.slow.settings import SlowSettings
from fleet.documents import Frozen

Seconds = Annotated[float, Field(gt=0.0, le=3600.0)]


class WatcherSettings(Frozen):
    """How often it judges, and what its detectors go by."""

    judge_s: Seconds = 0.25  # as often as agents look
    settle_s: Seconds = 5.0  # after a standstill, before slowness is judged again: windows still hold the standstill
    same_fault_s: Seconds = 10.0  # said again so soon after, it is the same fault
    hangs: HangSettings = HangSettings()
    crashes: CrashSettings = CrashSettings()
    slow: SlowSettings | None = SlowSettings()  # none: only hangs and crashes
