"""Named scenarios: faults, congestion, noise, and the length of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from faults.simulator.congestion import CongestionRates
from faults.simulator.fault_mix import SLOW_SHARES, FaultMix
from faults.simulator.fault_schedule import SLOW, FaultKind
from faults.simulator.noise import LAB, Noise
from faults.simulator.telemetry import Losses

HOUR_S = 3600.0
NO_FAULTS = FaultMix(shares={})
_USUAL, _FEW = CongestionRates(), Losses()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs of `job_s` are simulated one after the other, each with its own seed, until the hours are full."""

    description: str
    mix: FaultMix = field(default_factory=lambda: NO_FAULTS)
    background_h: float = 60.0  # look-alikes per hour without a fault, at 16,384 ranks
    congestion_rates: CongestionRates = _USUAL
    losses: Losses = _FEW
    noise: Noise = LAB
    imbalance: float = 0.0
    job_s: float = HOUR_S
    paths_known: bool = True
    trees: bool = True
    stages: int = 8
    experts: int = 0
    in_time_s: float = 30.0
    natural: bool = False  # fewer ranks, fewer faults
    quiet_s: float = 0.0  # before the first fault: very small faults need a long baseline
    probes: bool = True  # whether agents send one-way probes to their peers
    probe_ports: int = 8  # source ports in turn: as many paths by the hash
    planes: frozenset[str] = field(default=frozenset({"slow", "compute", "hang"}))


_LEAVES = FaultMix(shares={FaultKind.LEAF: 0.75, FaultKind.UPLINK: 0.25})
_SLOW = FaultMix(shares={kind: share for kind, share in SLOW_SHARES.items() if kind in SLOW})
_SMALL = FaultMix(
    shares={FaultKind.STRAGGLER: 1.0},
    factors=(1.03,),
    factor_shares=(1.0,),
    lasting_s=300.0,
    rest_s=300.0,
    negatives=5.0,
    congested=0.0,
)
_RARE = FaultMix(lasting_s=300.0, rest_s=2.4 * HOUR_S, first_s=2.4 * HOUR_S)  # of 16,384 ranks; 1.8 to 3.1 h published
_CLUSTER = "as in a real cluster: a fault every few hours"
_EIGHT = FaultMix(shares=SLOW_SHARES, congested=1.0, together=(8, 8), negatives=2.0)  # sixteen each time
_BUSY = CongestionRates(per_uplink_h=5.0)


class ScenarioName(StrEnum):
    """All of `SCENARIOS`."""

    HEALTHY = "healthy"
    MIXED = "mixed"
    CONGESTION = "congestion"
    LEAF = "leaf"
    STRAGGLER = "straggler"
    IMBALANCE = "imbalance"
    PUBLIC = "public"
    EIGHT = "eight"
    EARLY = "early"
    HANGS = "hangs"
    LOST_AGENTS = "lost-agents"
    SKEW = "skew"
    BLIND = "blind"
    RING_ONLY = "ring-only"
    EXPERTS = "experts"
    MILD = "mild"
    NO_PROBES = "no-probes"
    WEEKS = "weeks"
    WEEKS_NO_PROBES = "weeks-no-probes"


SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "healthy": Scenario("no fault; congestion, look-alikes and lost telemetry as usual"),
        "mixed": Scenario("the public mix one after the other, up to 8 at once, the first within a second", FaultMix()),
        "congestion": Scenario("slow faults under ten times the congestion", _SLOW, congestion_rates=_BUSY),
        "leaf": Scenario("slow leaf switches and cables; no node is at fault", _LEAVES),
        "straggler": Scenario(
            "nodes that compute 3 % longer, to be named within 4 minutes",
            _SMALL,
            job_s=2 * HOUR_S,
            quiet_s=900.0,
            in_time_s=240.0,
            planes=frozenset({"compute"}),
        ),
        "imbalance": Scenario(
            "slow compute while the data of replicas differs by 10 %",
            FaultMix(shares={FaultKind.STRAGGLER: 1.0}, lasting_s=120.0),
            imbalance=0.10,
            quiet_s=300.0,
            planes=frozenset({"compute"}),
        ),
        "public": Scenario(
            "slow faults of the public mix, up to 8 at once, under ten times the congestion",
            FaultMix(shares=SLOW_SHARES),
            congestion_rates=_BUSY,
        ),
        "eight": Scenario("eight slow faults at once, every time", _EIGHT),
        "early": Scenario("a new job every 90 s, with faults from its first second", FaultMix(), job_s=90.0),
        "hangs": Scenario(
            "crashes and hangs only", FaultMix(shares={FaultKind.CRASH: 40, FaultKind.HANG_CODE: 12,
            FaultKind.HANG_NODE: 9, FaultKind.HANG_LINK: 6}, congested=0.0), planes=frozenset({"hang"}),
        ), "lost-agents":  Scenario("5 % of agents lost instead of 1 %", FaultMix(), losses=Losses(agents=0.05)),
        "skew":  Scenario("clock errors up to 50 ms instead of 5", FaultMix(), losses=Losses(skew_s=0.05)), "blind":
        Scenario("slow faults where the path of a flow is unknown", _SLOW, paths_known=False), "ring-only":
        Scenario("one peer each way: a link and its ends are indistinguishable", _SLOW, trees=False, stages=1),
        "experts":  Scenario("slow faults with an all-to-all of eight on each rail", _SLOW, experts=8), "mild":
        Scenario("slow faults of 1.15x", FaultMix(shares=_SLOW.shares, factors=(1.15,), factor_shares=(1.0,))),
        "no-probes":  Scenario("the public mix where agents send no probes", FaultMix(), probes=False), "weeks":
        Scenario(_CLUSTER, _RARE, job_s=6 * HOUR_S, natural=True), "weeks-no-probes":  Scenario(
            f"{_CLUSTER}, without probes", _RARE, job_s=6 * HOUR_S, natural=True, probes=False
        ),
    }
)  # fmt: skip
