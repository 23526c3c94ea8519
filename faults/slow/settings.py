"""The numbers of the live slow detector, each with its reason.  docs/faults/slow.md"""

from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

Seconds = Annotated[float, Field(gt=0, le=3600)]
Ratio = Annotated[float, Field(gt=1, le=100)]
Share = Annotated[float, Field(gt=0, lt=1)]


class SlowSettings(Frozen):
    """Of one job."""

    window_s: Seconds = 2.5  # 10 looks at 4 Hz: the noise of a busy pair is then 6 %, of a short message 16 %
    every_s: Seconds = 0.5  # windows overlap: five looks into one fault before it leaves
    warm_up_s: Seconds = 1.0  # connections start slowly; what they carry first is no baseline
    history_s: Annotated[float, Field(gt=0, le=86400)] = 600.0  # a shorter one lets a fault become usual
    enough_windows: Annotated[int, Field(ge=2, le=1000)] = 5  # before an own baseline is believed
    hits: Annotated[int, Field(ge=1, le=100)] = 3  # of the last `of`: one congested second is no fault
    of: Annotated[int, Field(ge=1, le=100)] = 4
    late_hits: Annotated[int, Field(ge=1, le=100)] = 2  # a CUSUM has waited already
    gone_s: Seconds = 5.0  # without a hit for so long, the fault is over

    false_per_window: Share = 1e-4  # of each fit: the price of an entity; harm and persistence come on top
    false_given_harm: Share = 3e-2  # the same while steps are longer than noise explains: both must happen by chance
    least_slowdown: Ratio = 1.1  # of an edge, below which nothing is said of a wire
    least_harm: Ratio = 1.08  # of the step time against its baseline
    least_implied_harm: Ratio = 1.15  # where there is no baseline: what the fastest peers' bandwidth would save
    chance_of_harm: Share = 0.05  # above, longer steps may be noise
    plain_harm: Ratio = (
        1.15  # implied so plainly, steps need only be longer, not certainly so: they may scatter by 40 %
    )
    pacing_share: Share = 0.7  # of the slowest wire's time: whoever takes less does not set the pace
    compute_harm: Share = 0.05  # of the step, for which all others wait for one rank

    busy_ticks: Annotated[float, Field(ge=1, le=100)] = 5.0  # of 4 ms, below which busy time is a rounding error
    foreign_share: Share = 0.1  # of the fastest pair's bandwidth, from which other people's bytes explain slowness
    segment_bytes: Annotated[float, Field(ge=500, le=65536)] = 1448.0  # of a TCP packet on Ethernet
    aligned_s: Seconds = 0.02  # two ends looked at so close in time tell where bytes wait

    gap_slack_sigma: Annotated[float, Field(gt=0, le=5)] = 1.0  # CUSUM: a shift of less is left alone
    gap_limit_sigma: Annotated[float, Field(gt=0, le=100)] = 10.0  # see docs/faults/slow.md for its run length
    gap_winsor_sigma: Annotated[float, Field(gt=0, le=20)] = 3.0  # one pause, however long, says no more than this

    # Memory and time grow with the square of it: every pair is a place in a table.  Larger jobs: faults/large_jobs.
    most_nodes: Annotated[int, Field(ge=1, le=256)] = 128
