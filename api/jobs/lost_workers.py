"""Finds workers that are lost: their beats stand still on the clock of the observer.

Pure: the observer passes what it reads and its own clock, so no two machines compare their clocks.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from api.store import WorkerRecord

LOST_AFTER_S: Final = 10.0


@dataclass(slots=True)
class WorkerWatch:
    """Remembers the beats of the other workers, and since when each stands still."""

    own_id: str
    seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def lost(self, workers: Iterable[WorkerRecord], *, orphans: Collection[str], now_s: float) -> list[str]:
        """Return the lost workers; `orphans` hold jobs without being in the table of workers."""
        self.seen = {
            worker.id: earlier
            if (earlier := self.seen.get(worker.id)) is not None and earlier[0] == worker.beats
            else (worker.beats, now_s)
            for worker in workers
            if worker.id != self.own_id
        }
        still = [name for name, (_beats, since_s) in self.seen.items() if now_s - since_s > LOST_AFTER_S]
        return still + [name for name in orphans if name != self.own_id and name not in still]
