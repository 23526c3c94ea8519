"""An evenly spread sample of the last `horizon` of a row of vectors, in bounded memory and single precision.

Every `stride`-th is kept.  A full buffer drops every second one and doubles the stride, until it spans the horizon;
from then on it drops the oldest quarter.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats

MAX_ROWS: Final = 256  # the median of so many rows is exact to 8 % of a standard deviation
MIN_ROWS: Final = 32
MAX_NUMBERS: Final = 4_000_000  # 16 MB


class Sample:
    def __init__(self, length: int, horizon: int) -> None:
        rows = int(np.clip(MAX_NUMBERS // max(1, length), MIN_ROWS, MAX_ROWS))
        self._most, self._length, self._horizon = rows, length, horizon
        self._rows: NDArray[np.float32] = np.empty((0, length), dtype=np.float32)
        self._count, self._stride = 0, 1
        self.total = 0  # of which the kept ones are a part

    def take(self, vector: Floats) -> None:
        if self.total % self._stride == 0:
            if self._count == self._most:
                self._thin_out()
            if self.total % self._stride == 0:
                self._put(vector)
        self.total += 1

    @property
    def rows(self) -> Floats:
        return self._rows[: self._count].astype(np.float64)

    def _thin_out(self) -> None:
        if self._stride * self._most < self._horizon:
            kept = self._rows[: self._count : 2].copy()
            self._stride *= 2
        else:
            kept = self._rows[self._count // 4 : self._count].copy()
        self._count = len(kept)
        self._rows[: self._count] = kept

    def _put(self, vector: Floats) -> None:
        if self._count == len(self._rows):
            more = min(self._most, max(8, 2 * self._count))
            grown = np.empty((more, self._length), dtype=np.float32)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count] = vector
        self._count += 1
