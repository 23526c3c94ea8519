"""Whether a prompt may start by what the row draws: the power room's admission, with what the guard last said."""

from dataclasses import dataclass, replace
from math import inf

from power.admission import LOW_PATIENCE_S, admits, limit_w
from power.controls import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Watts:
    """The row as last modelled, and what prompts are held to."""

    row_w: float
    step_w: float  # that one prompt adds to its server
    low_limit_w: float
    high_limit_w: float
    patience_s: float = LOW_PATIENCE_S

    def lets(self, priority: Priority, *, waited_s: float) -> bool:
        """Whether one more prompt fits."""
        most_w = limit_w(priority, waited_s, self.patience_s, self.low_limit_w, self.high_limit_w)
        return admits(self.row_w, self.step_w, most_w)

    def with_one_more(self) -> "Watts":
        """A prompt was started; the next reading has it."""
        return replace(self, row_w=self.row_w + self.step_w)


NO_LIMIT = Watts(row_w=0.0, step_w=0.0, low_limit_w=inf, high_limit_w=inf)
