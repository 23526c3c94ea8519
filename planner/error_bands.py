"""How far measured rates lay from the roofline's, where that was measured: `bench/roofline_error.py` prints these.

A band belongs to the coefficients it was measured with and to the kind of model; nothing is carried over to a GPU type
or a kind of model that was not measured.
"""

from dataclasses import dataclass
from datetime import date

from fleet.gpus import GpuSpec
from fleet.models import ModelArchitecture


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """Multiples of the predicted rate between which 90 % of the measured rates lay, at equal concurrency."""

    low: float
    high: float
    points: int
    measured: date

    def note(self, gpu: str) -> str:
        """What the band rests on."""
        points = f"{self.points} measured points of dense 16-bit models on {gpu}"
        return f"{points}, compared at equal concurrency on {self.measured}"


DENSE_BANDS = {"H100-SXM": ErrorBand(low=0.63, high=1.18, points=344, measured=date(2026, 11, 21))}


def band_for(gpu: GpuSpec, model: ModelArchitecture) -> ErrorBand | None:
    """The band that applies, None where nothing was measured."""
    return None if model.experts else DENSE_BANDS.get(gpu.name)
