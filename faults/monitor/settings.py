"""All numbers of a watcher in one document."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from faults.crashes import CrashSettings
from faults.hangs import HangSettings
from faults.large_jobs.settings import JobwideSettings
from faults.slow.settings import SlowSettings
from fleet.documents import Frozen, RuleError, Violation

MIN_S = 1e-3  # nothing here is measured in less; what is counted per such a time stays countable

Seconds = Annotated[float, Field(ge=MIN_S, le=3600.0)]


class MonitorSettings(Frozen):
    """How often it judges, and what its detectors go by."""

    judge_s: Seconds = 0.25  # as often as agents look
    settle_s: Seconds = 5.0  # after a standstill, before slowness is judged again: windows still hold the standstill
    same_fault_s: Seconds = 10.0  # said again so soon after, it is the same fault
    hangs: HangSettings = HangSettings()
    crashes: CrashSettings = CrashSettings()
    slow: SlowSettings | None = SlowSettings()  # none: only hangs and crashes
    jobwide: JobwideSettings = JobwideSettings()  # in its place where nodes are many, beside it where leaves are known

    @model_validator(mode="after")
    def _no_second_too_short(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        """A window each MIN_S at the most, in every detector."""
        for name in ("slow", "jobwide"):
            part = getattr(self, name)
            for field, value in () if part is None else part:
                if field.endswith("_s") and value < MIN_S:
                    yield (name, field), f"expected at least {MIN_S} s, got {value!r}"
