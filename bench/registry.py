"""The benchmarks in the order of `bench/REPORT.md`, each with its target and the anchor it is compared with."""

from dataclasses import dataclass
from importlib import import_module

from bench.harness import Row

SECTIONS = ("Planner", "Placement", "Power", "Runtime", "Faults")


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A function `run() -> list[Row]` of the module `bench.NAME`: rows of figures with units in their names.

    `entry` names another function, as `module:function`.  `target` is what the figures must reach, `anchor` what they
    are compared with; both apply to every row.  A `slow` benchmark takes more than about ten minutes and runs only when
    it is named.
    """

    name: str
    section: str
    title: str
    target: str = ""
    anchor: str = ""
    entry: str = ""
    slow: bool = False

    def measure(self) -> list[Row]:
        module, _, function = (self.entry or f"{self.name}:run").partition(":")
        rows: list[Row] = getattr(import_module(f"bench.{module}"), function)()
        return rows


REGISTRY = (
    Benchmark(
        name="solve_time",
        section="Planner",
        title="One workload, 70 options, 60 request sizes",
        target="p99 40 ms, worst 200 ms",
        anchor="per-slice formulation of Mélange, CBC; plain program, HiGHS",
    ),
    Benchmark(
        name="decomposition",
        section="Planner",
        title="Many models that share stock and power",
        target="gap 0.1 % in 10 s",
        anchor="the same program given whole to HiGHS",
    ),
    Benchmark(
        name="accuracy",
        section="Planner",
        title="Accuracy of the performance model",
        anchor="plain roofline; silicon sample of ai-dynamo/aiconfigurator 095f58a5",
    ),
    Benchmark(
        name="profile_interpolation",
        section="Planner",
        title="Interpolation of measured profiles",
        anchor="nearest measured size",
    ),
    Benchmark(
        name="verified_plans",
        section="Planner",
        title="Plans validated by replay",
        target="every limit holds, no replica to spare",
        anchor="Azure LLM traces of 2023",
        slow=True,
    ),
    Benchmark(
        name="stability",
        section="Planner",
        title="Steadiness under 5 % noise",
        target="at most 3 changes in 100 windows",
        anchor="solved from nothing in each window",
    ),
    Benchmark(
        name="horizon", section="Planner", title="Plans over a day", target="gap 1 %", anchor="the peak's mix all day"
    ),
    Benchmark(
        name="placement_balance",
        section="Placement",
        title="Balance",
        target="at or below both policies",
        anchor="EPLB; proven lower bound",
    ),
    Benchmark(
        name="placement_few_slots", section="Placement", title="Two slots per GPU", anchor="EPLB; proven lower bound"
    ),
    Benchmark(
        name="placement_dispatch", section="Placement", title="Dispatch to the nearest replica", anchor="EPLB global"
    ),
    Benchmark(
        name="placement_traffic", section="Placement", title="Traffic between nodes", anchor="EPLB, both policies"
    ),
    Benchmark(name="placement_drift", section="Placement", title="Migration and drift", anchor="EPLB global"),
    Benchmark(
        name="placement_exact",
        section="Placement",
        title="The integer programs",
        target="the search equals the program",
        anchor="proven lower bound",
    ),
    Benchmark(
        name="power_reproduction",
        section="Power",
        title="POLCA reproduced",
        target="at most one brake per seed at +30 %",
        anchor="POLCA as published",
        entry="power_policies:reproduction",
        slow=True,
    ),
    Benchmark(
        name="power_more_servers",
        section="Power",
        title="More servers",
        target="no brake, SLO held",
        anchor="the same requests uncapped",
        entry="power_policies:more_servers",
        slow=True,
    ),
    Benchmark(
        name="power_training_share",
        section="Power",
        title="A quarter of the row trains",
        target="no brake, SLO held",
        anchor="POLCA",
        entry="power_policies:training_share",
        slow=True,
    ),
    Benchmark(
        name="power_faults",
        section="Power",
        title="Faults of meters, agents and planner",
        target="no brake unless power demands one",
        anchor="no fault",
        slow=True,
    ),
    Benchmark(
        name="power_prefill",
        section="Power",
        title="Prefill-heavy row",
        target="no brake, SLO held at +30 %",
        anchor="POLCA",
        entry="power_policies:prefill",
        slow=True,
    ),
    Benchmark(name="power_guard", section="Power", title="Cost of the guard", target="brake read back in 5 s"),
    Benchmark(name="power_caps", section="Power", title="Cap plans", target="gap 1 %", anchor="relaxed program"),
    Benchmark(
        name="power_forecast",
        section="Power",
        title="Power forecasts",
        target="pinball loss below each baseline",
        anchor="persistence, autoregression, Holt; yesterday, last week",
        slow=True,
    ),
    Benchmark(
        name="power_training", section="Power", title="Training under a power budget", anchor="all at full clock"
    ),
    Benchmark(
        name="controller",
        section="Runtime",
        title="The controller",
        target="5 s of one core, 500 MB, no growth",
    ),
    Benchmark(
        name="router",
        section="Runtime",
        title="The router",
        target="2 ms p50 and 10 ms p99 added",
        anchor="the same requests direct to the engine",
    ),
    Benchmark(
        name="router_on_serve",
        section="Runtime",
        title="The router as an ingress of Ray Serve",
        anchor="an ingress that only passes on",
    ),
    Benchmark(
        name="healing",
        section="Runtime",
        title="Remediation of a frozen worker",
        anchor="Ray alone: nothing in 60 s",
        slow=True,
    ),
    Benchmark(
        name="faults_recordings",
        section="Faults",
        title="Recordings",
        target="right class, place and direction; no wrong quarantine",
    ),
    Benchmark(name="faults_readers", section="Faults", title="Readers", target="bounded memory"),
    Benchmark(name="faults_agent", section="Faults", title="Cost of the recorder", target="0.5 % of a core at 4 Hz"),
    Benchmark(name="faults_lab", section="Faults", title="Live lab", target="all faults named", slow=True),
    Benchmark(name="faults_lab_noise", section="Faults", title="Noise of the lab", slow=True),
    Benchmark(
        name="faults_directions", section="Faults", title="Directions, on a model", target="95 % right", slow=True
    ),
    Benchmark(
        name="faults_stragglers",
        section="Faults",
        title="Stragglers",
        target="+3 % within 4 minutes, under one false alarm a day",
        slow=True,
    ),
    Benchmark(
        name="faults_scale",
        section="Faults",
        title="Scale",
        target="99 % named in 30 s, no false quarantine",
        anchor="C4's rule on the same windows",
        slow=True,
    ),
    Benchmark(
        name="false_isolation_rate",
        section="Faults",
        title="False quarantines in weeks",
        target="none",
        entry="faults_scale:weeks",
        slow=True,
    ),
    Benchmark(
        name="faults_paths",
        section="Faults",
        title="Path planning",
        target="2 % above the bound",
        anchor="hashed paths; fractional optimum",
        slow=True,
    ),
)
