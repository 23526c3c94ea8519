"""The parameters of windows and diagnoses, each with its reason."""

from typing import Annotated

from pydantic import Field

from faults.localisation.settings import LocaliserSettings
from faults.stragglers import StragglerSettings
from fleet.documents import Frozen

Share = Annotated[float, Field(ge=0, le=1)]


class LargeJobSettings(Frozen):
    window_s: Annotated[float, Field(ge=0.5, le=60)] = 5.0  # 20 polls at 4 Hz; a diagnosis takes four windows
    # Of stragglers: a hiccup of 12 s touches six of them, 15 s, and four of 5 s, 20 s.
    gap_window_s: Annotated[float, Field(ge=0.5, le=60)] = 2.5
    late_s: Annotated[float, Field(ge=0, le=60)] = 1.0  # that an observation may come after its window has ended
    learn_windows: Annotated[int, Field(ge=1, le=100)] = 3  # until the edges are settled
    relearn_windows: Annotated[int, Field(ge=1, le=100)] = 6  # in a row of mostly other pairs: the job has come back
    max_pairs: Annotated[int, Field(ge=1, le=4_000_000)] = 500_000  # that are kept; 16,384 ranks have 110,336 edges
    busy_ticks: Annotated[float, Field(ge=1, le=100)] = 5.0  # of 4 ms, below which busy time is a rounding error
    min_probes: Annotated[int, Field(ge=1, le=1000)] = 3  # of a pair in a window: of fewer all may have met traffic
    foreign_share: Share = 0.1  # of the fastest kind's bandwidth, above which foreign bytes explain slowness
    chance_of_harm: Share = 0.05  # above, longer steps may be noise, and justify no quarantine

    localiser: LocaliserSettings = LocaliserSettings()
    stragglers: StragglerSettings = StragglerSettings()
