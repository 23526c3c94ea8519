"""The parameters of the live slow detector, each with its reason.  docs/explanation/faults/slow.md"""

from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Seconds = Annotated[float, Field(gt=0, le=3600)]
Ratio = Annotated[float, Field(gt=1, le=100)]
Share = Annotated[float, Field(gt=0, lt=1)]


class SlowSettings(Frozen):
    window_s: Seconds = 2.5  # 10 polls at 4 Hz: the noise of a busy pair is then 6 %, of a short message 16 %
    every_s: Seconds = 0.5  # windows overlap: five evaluations of one fault before it leaves
    warm_up_s: Seconds = 1.0  # connections start slowly; their first bytes are no baseline
    history_s: Annotated[float, Field(gt=0, le=86400)] = 600.0  # a shorter one lets a fault become usual
    enough_windows: Annotated[int, Field(ge=2, le=1000)] = 5  # before an own baseline is used
    hits: Annotated[int, Field(ge=1, le=100)] = 3  # of the last `of`: one congested second is no fault
    of: Annotated[int, Field(ge=1, le=100)] = 4
    late_hits: Annotated[int, Field(ge=1, le=100)] = 2  # a CUSUM has waited already
    gone_s: Seconds = 5.0  # without a finding for so long, the fault is over

    false_per_window: Share = 1e-4  # of each fit: the price of an entity; harm and persistence come on top
    false_given_harm: Share = 3e-2  # the same if steps are longer than noise explains: both must happen by chance
    min_slowdown: Ratio = 1.1  # of an edge, below which nothing is named
    min_harm: Ratio = 1.08  # of the step time against its baseline
    min_implied_harm: Ratio = 1.15  # without a baseline: the saving at the fastest peers' bandwidth
    chance_of_harm: Share = 0.05  # above, longer steps may be noise
    plain_harm: Ratio = 1.15  # if implied this clearly, longer steps need not be certain: they may scatter by 40 %
    pacing_share: Share = 0.7  # of the slowest edge's time: a smaller one does not set the speed
    compute_harm: Share = 0.05  # of the step, that all others wait for one rank

    busy_ticks: Annotated[float, Field(ge=1, le=100)] = 5.0  # of 4 ms, below which busy time is a rounding error
    foreign_share: Share = 0.1  # of the fastest pair's bandwidth, above which foreign bytes explain slowness
    segment_bytes: Annotated[float, Field(ge=500, le=65536)] = 1448.0  # of a TCP packet on Ethernet
    aligned_s: Seconds = 0.02  # polls of two ends so close in time show where bytes wait

    gap_slack_sigma: Annotated[float, Field(gt=0, le=5)] = 1.0  # CUSUM: a smaller shift is ignored
    gap_limit_sigma: Annotated[float, Field(gt=0, le=100)] = 10.0  # run length: docs/explanation/faults/slow.md
    gap_winsor_sigma: Annotated[float, Field(gt=0, le=20)] = 3.0  # one pause, however long, counts no more than this

    # Memory and time grow with its square, since every pair has an entry.  Larger jobs: faults/large_jobs.
    max_nodes: Annotated[int, Field(ge=1, le=256)] = 128
