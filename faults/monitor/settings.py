"""The settings of a fault monitor.  Their names are part of the bundle format."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from faults.crashes import CrashSettings
from faults.hangs import HangSettings
from faults.large_jobs.settings import LargeJobSettings
from faults.slow.settings import SlowSettings
from fleet.documents import Frozen, RuleError, Violation

MIN_S = 1e-3  # shortest time; bounds every count per time

Seconds = Annotated[float, Field(ge=MIN_S, le=3600.0)]


class MonitorSettings(Frozen):
    """The evaluation period, and the settings of the detectors."""

    judge_s: Seconds = 0.25  # the sample period of agents
    settle_s: Seconds = 5.0  # pause of the slow detectors after a stall, which is still in their windows
    same_fault_s: Seconds = 10.0  # a repeated diagnosis within this time is the same fault
    hangs: HangSettings = HangSettings()
    crashes: CrashSettings = CrashSettings()
    slow: SlowSettings | None = SlowSettings()  # None: hangs and crashes only
    # Replaces `slow` for many nodes, and joins it if the leaves are known.
    jobwide: LargeJobSettings = LargeJobSettings()

    @model_validator(mode="after")
    def _no_second_too_short(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        """Report each window or period shorter than MIN_S."""
        for name in ("slow", "jobwide"):
            part = getattr(self, name)
            for field, value in () if part is None else part:
                if field.endswith("_s") and value < MIN_S:
                    yield (name, field), f"expected at least {MIN_S} s, got {value!r}"
