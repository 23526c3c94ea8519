"""Whether a prompt may start by the power of the row: `power.admission` with the guard's last limits."""

from dataclasses import dataclass, replace
from math import inf

from power.admission import LOW_PATIENCE_S, admits, limit_w
from power.controls import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAdmission:
    """The modelled power of the row, and the limits of prompts."""

    row_w: float
    step_w: float  # added by one prompt
    low_limit_w: float
    high_limit_w: float
    patience_s: float = LOW_PATIENCE_S

    def allows(self, priority: Priority, *, waited_s: float) -> bool:
        """Return whether one more prompt fits."""
        most_w = limit_w(priority, waited_s, self.patience_s, self.low_limit_w, self.high_limit_w)
        return admits(self.row_w, self.step_w, most_w)

    def with_one_more(self) -> "PowerAdmission":
        """Return the limits with one more prompt that started since the reading."""
        return replace(self, row_w=self.row_w + self.step_w)


NO_LIMIT = PowerAdmission(row_w=0.0, step_w=0.0, low_limit_w=inf, high_limit_w=inf)
