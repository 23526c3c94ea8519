"""The parameters of the localiser, each with its reason.  docs/explanation/faults/localisation.md"""

import math
from typing import Annotated

from pydantic import Field

from fleet.documents import Frozen

WEEK_S = 7 * 86400.0
MANY_LINKS = 100_000

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, le=1e6)]


class LocaliserSettings(Frozen):
    false_per_week: Positive = 0.1  # false diagnoses of a healthy node or NIC; a tenth of the target
    # Among 100,000 links, in proportion for fewer; they justify no quarantine.  In a job with rare faults the odds
    # against a fault exceed this bar, and a less certain link is not reported.
    false_links_per_week: Positive = 1000.0
    false_links_per_start: Positive = 0.1  # likewise, of those that are unusual from the first window on
    fault_every_h: Positive = (
        2.4  # real faults of the whole job: 1.8 to 3.1 h at 16,384 ranks (arXiv 2410.21680, Llama 3)
    )
    min_slowdown: Annotated[float, Field(ge=1.01, le=2)] = 1.10  # below, nothing is named
    starts_per_week: Positive = 1000.0  # an unusual edge at the start is drawn ten times
    min_confidence: Share = 0.5  # below, a fault is kept and not reported
    hiccup_s: Annotated[float, Field(ge=0, le=300)] = 10.0  # a slowdown that ends within so long is no fault
    spare_windows: Annotated[int, Field(ge=0, le=8)] = 1  # of them may lack support
    forget: Annotated[int, Field(ge=1, le=100)] = 3  # windows without support until a diagnosis ends

    leak: Share = 0.3  # of a slow NIC on the reverse path, where acknowledgements queue; about 1 for TCP
    feels: tuple[Share, Share, Share] = (1.0, 1.0, 0.7)  # per kind of traffic: small messages also wait for latency
    host_misfit: Share = 0.15  # of an explained slowdown: how unevenly the edges of one slow NIC show it
    switch_misfit: Share = 0.30  # flows share a congested cable unevenly

    probe_ports: Annotated[int, Field(ge=1, le=64)] = (
        8  # source ports of probes, as in the recorder: the fastest counts
    )
    spread_tail: Annotated[float, Field(gt=2, le=100)] = 20.0  # degrees of freedom of that difference: nearly normal
    spread: Positive = 0.05  # first guess of the permanent difference between edges of one kind (log); estimated later
    warm_windows: Annotated[int, Field(ge=1, le=1000)] = 12  # until an edge's own history counts as known
    memory_windows: Annotated[int, Field(ge=10, le=100_000)] = 360  # of that history: an hour of 10 s windows
    congested: Annotated[float, Field(gt=0, lt=0.5)] = 0.005  # first guess: share of congested uplinks
    odd: Annotated[float, Field(gt=0, lt=0.5)] = 1e-4  # first guess: share of outliers
    screen: Positive = 4.5  # standard deviations of an entity's sum, to become a candidate
    lasting_s: Positive = 600.0  # a cable congested for longer is called a fault

    def node_bar(self, entities: int, window_s: float, *, young: bool = False) -> float:
        """Return the nats that a node needs: Ville's inequality over all entities and all windows of a week."""
        return math.log(max(entities, 1) * self._draws(window_s, young=young) / self.false_per_week)

    def link_bar(self, links: int, window_s: float, *, young: bool = False) -> float:
        """Return the nats of evidence that a link needs, by the same inequality."""
        draws = max(WEEK_S / window_s, 1.0) / self.false_links_per_week
        return math.log(max(links, MANY_LINKS) * (min(draws, 1.0 / self.false_links_per_start) if young else draws))

    def hits(self, window_s: float) -> int:
        """Return the windows with support, out of `hits + spare_windows`: one more than a hiccup touches."""
        return min(math.ceil(self.hiccup_s / window_s) + 2, 24)

    def _draws(self, window_s: float, *, young: bool) -> float:
        """Chances of noise in a week.  In a young job the peers' spread dominates, which is drawn per start."""
        windows = max(WEEK_S / window_s, 1.0)
        return min(windows, self.starts_per_week) if young else windows

    def price(self, entities: int, window_s: float, *, every_h: float | None = None) -> float:
        """Return the nats of one more explanation in a fit: the log odds against a fault in this window."""
        return math.log(entities * max((every_h or self.fault_every_h) * 3600.0 / window_s, 1.0))
