"""The benchmarks in the order of `bench/REPORT.md`, each with its target and the anchor it is compared with."""

from dataclasses import dataclass
from importlib import import_module

from bench.harness import Row


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A function `run() -> list[Row]` of the module `bench.NAME`: rows of figures with units in their names.

    `entry` names another function, as `module:function`.  `target` is what the figures must reach, `anchor` what they
    are compared with; both apply to every row.  A `slow` benchmark takes more than about ten minutes and runs only when
    it is named.
    """

    name: str
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
    # Planner
    Benchmark(
        "solve_time",
        "One workload, 70 options, 60 request sizes",
        target="p99 40 ms, worst 200 ms",
        anchor="per-slice formulation of Mélange, CBC; plain program, HiGHS",
    ),
    Benchmark(
        "decomposition",
        "Many models that share stock and power",
        target="gap 0.1 % in 10 s",
        anchor="the same program given whole to HiGHS",
    ),
    Benchmark(
        "accuracy",
        "Accuracy of the performance model",
        anchor="plain roofline; silicon sample of ai-dynamo/aiconfigurator 095f58a5",
    ),
    Benchmark("profile_interpolation", "Interpolation of measured profiles", anchor="nearest measured size"),
    Benchmark(
        "verified_plans",
        "Plans validated by replay",
        target="every limit holds, no replica to spare",
        anchor="Azure LLM traces of 2023",
        slow=True,
    ),
    Benchmark(
        "stability",
        "Steadiness under 5 % noise",
        target="at most 3 changes in 100 windows",
        anchor="solved from nothing in each window",
    ),
    Benchmark(
        "demand_forecast",
        "Demand forecasts",
        target="pinball loss below each baseline; share above a quantile at most 1 - q",
        anchor="last value, seasonal naive, Holt-Winters, each with quantiles of its own errors",
    ),
    Benchmark(
        "demand_sizes",
        "Request sizes from metrics pages",
        target="mean 1 %, p50 10 %, p99 20 %",
        anchor="the requests of the trace",
    ),
    Benchmark(
        "continuous_planning",
        "Continuous planning",
        target="cost 10 % over clairvoyant (aim 5 %), short windows 5 %",
        anchor="HPA, AIBrix and llm-d by their published rules",
    ),
    Benchmark(
        "planning_excess",
        "Excess cost of continuous planning",
        anchor="the clairvoyant planner; the loop's first rules",
        slow=True,
    ),
    Benchmark("horizon", "Plans over a day", target="gap 1 %", anchor="the peak's mix all day"),
    # Placement
    Benchmark("placement_balance", "Balance", target="at or below both policies", anchor="EPLB; proven lower bound"),
    Benchmark("placement_few_slots", "Two slots per GPU", anchor="EPLB; proven lower bound"),
    Benchmark("placement_dispatch", "Dispatch to the nearest replica", anchor="EPLB global"),
    Benchmark("placement_traffic", "Traffic between nodes", anchor="EPLB, both policies"),
    Benchmark("placement_drift", "Migration and drift", anchor="EPLB global"),
    Benchmark(
        "placement_exact", "The integer programs", target="the search equals the program", anchor="proven lower bound"
    ),
    # Power
    Benchmark(
        "power_reproduction",
        "POLCA reproduced",
        target="at most one brake per seed at +30 %",
        anchor="POLCA as published",
        entry="power_policies:reproduction",
        slow=True,
    ),
    Benchmark(
        "power_more_servers",
        "More servers",
        target="no brake, SLO held",
        anchor="the same requests uncapped",
        entry="power_policies:more_servers",
        slow=True,
    ),
    Benchmark(
        "power_training_share",
        "A quarter of the row trains",
        target="no brake, SLO held",
        anchor="POLCA",
        entry="power_policies:training_share",
        slow=True,
    ),
    Benchmark(
        "power_faults",
        "Faults of meters, agents and planner",
        target="no brake unless power demands one",
        anchor="no fault",
        slow=True,
    ),
    Benchmark(
        "power_prefill",
        "Prefill-heavy row",
        target="no brake, SLO held at +30 %",
        anchor="POLCA",
        entry="power_policies:prefill",
        slow=True,
    ),
    Benchmark("power_guard", "Cost of the guard", target="brake read back in 5 s"),
    Benchmark("power_caps", "Cap plans", target="gap 1 %", anchor="relaxed program"),
    Benchmark(
        "power_forecast",
        "Power forecasts",
        target="pinball loss below each baseline",
        anchor="persistence, autoregression, Holt; yesterday, last week",
        slow=True,
    ),
    Benchmark("power_training", "Training under a power budget", anchor="all at full clock"),
    # Runtime
    Benchmark("controller", "The controller", target="5 s of one core, 500 MB, no growth"),
    Benchmark(
        "router", "The router", target="2 ms p50 and 10 ms p99 added", anchor="the same requests direct to the engine"
    ),
    Benchmark(
        "router_on_serve",
        "The router as an ingress of Ray Serve",
        target="2 ms p50 and 10 ms p99 added",
        anchor="an ingress that only passes on",
    ),
    Benchmark("remediation", "Remediation of a frozen worker", anchor="Ray alone: nothing in 60 s", slow=True),
    # Faults
    Benchmark("faults_recordings", "Recordings", target="right class, place and direction; no wrong quarantine"),
    Benchmark("faults_lab", "Live lab", target="all faults named", slow=True),
    Benchmark(
        "faults_lab_loaded",
        "Live lab on a loaded host",
        target="95 % of slow links and NICs named, p95 5 s, no wrong quarantine",
        slow=True,
    ),
    Benchmark("faults_directions", "Directions, on a model", target="95 % right", slow=True),
    Benchmark("faults_lab_noise", "Noise of the lab", slow=True),
    Benchmark(
        "faults_stragglers", "Stragglers", target="+3 % within 4 minutes, under one false alarm a day", slow=True
    ),
    Benchmark(
        "faults_scale",
        "Scale",
        target="99 % named in 30 s, no false quarantine",
        anchor="C4's rule on the same windows",
        slow=True,
    ),
    Benchmark(
        "false_isolation_rate", "False quarantines in weeks", target="none", entry="faults_scale:weeks", slow=True
    ),
    Benchmark(
        "faults_paths",
        "Path planning",
        target="2 % above the bound",
        anchor="hashed paths; fractional optimum",
        slow=True,
    ),
    Benchmark("faults_agent", "Cost of the recorder", target="0.5 % of a core at 4 Hz"),
    Benchmark("faults_readers", "Readers", target="bounded memory"),
    Benchmark(
        "faults_dumps",
        "Dumps of stopped jobs",
        target="99 % of the culprits, another rank in one job of 1,000; 4,096 dumps in 120 s",
        slow=True,
    ),
    # Service
    Benchmark(
        "service_load",
        "Reads and writes beside heavy plans",
        target="200 reads/s p99 100 ms, 40 writes/s p99 400 ms; alone 600/s",
    ),
    Benchmark(
        "service_audit",
        "Checks of the audit",
        target="a million entries in 60 s; 10,000 after a checkpoint in 1 s",
    ),
    Benchmark(
        "service_workers",
        "Two workers of the service",
        target="1.7 times the throughput of one",
        anchor="one worker with one slot",
    ),
    Benchmark("service_day", "A day in 20 minutes", target="growth under 3 %, bounded database", slow=True),
)
